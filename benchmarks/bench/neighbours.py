"""What reranking by neighbours adds to a checkpoint's bi-encoder, without labels and with LeaPRR.

    python -m benchmarks.bench.neighbours [--checkpoint FOLDER] [--scenes 1000] [--epochs 0]

Each method's settings are those with the highest rSum on scenes of "val", and its figures are of
"test". With --epochs, LeaPRR is trained on "train" and measured instead; its code profile is
narrower here (--width) than the published 768. Captions and pictures are in a random order, so that
ties favour no answer.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from tandem.contract.content import Modality
from tandem.corpus.scenes.records import Split, scene_records
from tandem.evaluation.gallery import languages_of, make_gallery
from tandem.evaluation.metrics import RECALL_AT, recall_at
from tandem.evaluation.offline import OfflineGallery
from tandem.evaluation.ranking import Order, first_answer_ranks, retrieve_order
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.neighbours.database_augmentation import expand_in_sequence, expand_jointly
from tandem.neighbours.diffusion import DiffusionSettings, diffuse
from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.refinement import refine
from tandem.neighbours.leaprr.similarity_lists import SimilarityLists
from tandem.neighbours.leaprr.training import train_leaprr
from tandem.neighbours.neighbour_graph import mutual_graph, query_seeds
from tandem.neighbours.neighbour_lists import Scores, order_with_base
from tandem.neighbours.neighbour_weights import (
    WeightsOf,
    decayed_weights,
    equal_weights,
    power_weights,
)
from tandem.neighbours.query_expansion import expand_queries
from tandem.neighbours.reciprocal_neighbours import rerank_by_similar_queries, rerank_reciprocally
from tandem.neighbours.spectral import SpectralGraph, default_rank

SEED = 1
CAPTIONS = 2
NEIGHBOURS = (1, 3, 10)
ALPHAS = (1.0, 3.0, 9.0)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a corpus: what asks, what is found, and what is right."""

    queries: Scores
    items: Scores
    answers: list[set[int]]

    @property
    def base(self) -> Scores:
        """Similarities [Q, N]."""
        return self.queries @ self.items.T


@dataclass(frozen=True, slots=True)
class Encoded:
    """A corpus as the bi-encoder embeds it."""

    images: Scores
    texts: Scores
    image_of_text: Order

    def directions(self) -> tuple[Direction, Direction]:
        """Images that find texts, and texts that find images."""
        images = range(len(self.images))
        texts_of = [set(np.flatnonzero(self.image_of_text == image).tolist()) for image in images]
        image_of = [{image} for image in self.image_of_text.tolist()]
        return (
            Direction(self.images, self.texts, texts_of),
            Direction(self.texts, self.images, image_of),
        )

    def lists(self) -> SimilarityLists:
        """The same for LeaPRR."""
        images, texts = self.images, self.texts
        return SimilarityLists.of(
            images @ texts.T, images @ images.T, texts @ texts.T, self.image_of_text
        )


OrderOf = Callable[[Direction], Order]


def encoded(checkpoint: Checkpoint, split: Split, count: int) -> Encoded:
    """Encodes the first scenes of a split, and shuffles pictures and captions."""
    records = list(scene_records(split, SEED, count))
    gallery = make_gallery(records, languages_of(records), CAPTIONS)
    offline = OfflineGallery(checkpoint, gallery)
    rng = np.random.default_rng(SEED)
    images, texts = rng.permutation(count), rng.permutation(len(gallery.pairs))
    place_of_image = np.argsort(images)
    image_of_text = np.array([next(iter(each)) for each in gallery.answers(Modality.IMAGE)])
    return Encoded(
        _unit(offline.embeddings(Modality.IMAGE)[images]),
        _unit(offline.embeddings(Modality.TEXT)[texts]),
        place_of_image[image_of_text[texts]],
    )


def expansions() -> Iterator[tuple[str, str, OrderOf]]:
    """Yields each expansion: method, setting, order."""
    weights: list[tuple[str, str, WeightsOf]] = [
        ("A", "", equal_weights),
        ("AwD", "", decayed_weights),
        *(("alpha", f", alpha {alpha:g}", power_weights(alpha)) for alpha in ALPHAS),
    ]
    names = {"A": ("AQE", "ADBA"), "AwD": ("AQEwD", "ADBAwD"), "alpha": ("alpha-QE", "alpha-DBA")}
    for (kind, suffix, weights_of), k in product(weights, NEIGHBOURS):
        query_name, item_name = names[kind]
        setting = f"k {k}{suffix}"
        yield query_name, setting, _expanded(k, weights_of)
        yield f"{item_name} + {query_name}, in sequence", setting, _both(False, k, weights_of)
        yield f"{item_name} + {query_name}, jointly", setting, _both(True, k, weights_of)


def graph_methods() -> Iterator[tuple[str, str, OrderOf]]:
    """Yields diffusion and reciprocal neighbours: method, setting, order."""
    for k, query_k, alpha in product((10, 50), (3, 10), (0.99,)):
        setting = f"k {k}, query k {query_k}, alpha {alpha}"
        yield "DFS", setting, _diffused(DiffusionSettings(k, query_k, alpha))
        yield "FSR", setting, _spectral(DiffusionSettings(k, query_k, alpha))
    for k in (5, 10, 15, 20):
        yield "KRNN", f"k {k}", _reciprocal(k)
        for near in (1, 4):
            yield "KRNN by similar queries", f"k {k}, {near} queries", _by_similar(k, near)


def _reciprocal(k: int) -> OrderOf:
    return lambda side: rerank_reciprocally(side.base, k)


def _by_similar(k: int, near: int) -> OrderOf:
    return lambda side: rerank_by_similar_queries(side.base, k, side.queries @ side.queries.T, near)


def _expanded(k: int, weights_of: WeightsOf) -> OrderOf:
    return lambda side: retrieve_order(
        expand_queries(side.queries, side.items, k, weights_of) @ side.items.T
    )


def _both(is_joint: bool, k: int, weights_of: WeightsOf) -> OrderOf:
    expand = expand_jointly if is_joint else expand_in_sequence

    def order(side: Direction) -> Order:
        queries, items = expand(side.queries, side.items, k, weights_of)
        return retrieve_order(queries @ items.T)

    return order


def _diffused(settings: DiffusionSettings) -> OrderOf:
    return lambda side: order_with_base(
        diffuse(side.base, side.items @ side.items.T, settings), side.base
    )


def _spectral(settings: DiffusionSettings) -> OrderOf:
    def order(side: Direction) -> Order:
        seeds = query_seeds(side.base, settings.query_k, settings.gamma)
        graph = _eigenpairs(side.items.tobytes(), side.items.shape[1], settings.k, settings.gamma)
        return order_with_base(graph.diffuse(seeds, settings.alpha), side.base)

    return order


@cache
def _eigenpairs(items: bytes, width: int, k: int, gamma: float) -> SpectralGraph:
    items_ND = np.frombuffer(items).reshape(-1, width)
    graph_NN = mutual_graph(items_ND @ items_ND.T, k, gamma)
    return SpectralGraph.of(graph_NN, default_rank(len(graph_NN)))


def recalls(orders: tuple[Order, Order], corpus: Encoded) -> list[float]:
    """Returns R@1, R@5 and R@10 of images that find texts, and then of texts; in percent."""
    return [
        recall_at(first_answer_ranks(order, side.answers), k).percent
        for order, side in zip(orders, corpus.directions(), strict=True)
        for k in RECALL_AT
    ]


def tuned(dev: Encoded, test: Encoded) -> Iterator[tuple[str, str, list[float]]]:
    """Yields each method with its best setting on dev, and the recalls of test with it."""
    best: dict[str, tuple[float, str, OrderOf]] = {}
    for method, setting, order_of in [*expansions(), *graph_methods()]:
        found = sum(recalls(_orders(order_of, dev), dev))
        if method not in best or found > best[method][0]:
            best[method] = found, setting, order_of
    for method, (_, setting, order_of) in best.items():
        yield method, setting, recalls(_orders(order_of, test), test)


def learned(
    train: Encoded, dev: Encoded, test: Encoded, epochs: int, width: int
) -> Iterator[tuple[str, str, list[float]]]:
    """Yields LeaPRR by its paper and by its code, narrower."""
    lists = [each.lists() for each in (train, dev, test)]
    narrow = replace(leaprr_config("code"), width=width, head_count=8)
    for name, config in [("paper", leaprr_config("paper")), (f"code, width {width}", narrow)]:
        config = replace(config, batch_size=256)
        result = train_leaprr(lists[0], config, epoch_count=epochs, seed=SEED, dev=lists[1])
        orders = refine(result.model, lists[2])
        yield (
            "LeaPRR",
            f"{name}, {epochs} epochs of {len(train.images):,} scenes",
            recalls((orders.texts_of_image, orders.images_of_text), test),
        )


def _orders(order_of: OrderOf, corpus: Encoded) -> tuple[Order, Order]:
    images, texts = corpus.directions()
    return order_of(images), order_of(texts)


def _unit(embeddings: Scores) -> Scores:
    unit: Scores = embeddings.astype(np.float64)
    return unit / np.linalg.norm(unit, axis=1, keepdims=True)


def _row(method: str, setting: str, percents: list[float]) -> str:
    cells = " | ".join(f"{percent:.1f}" for percent in percents)
    return f"| {method} | {setting} | {cells} | {sum(percents):.1f} |"


def main() -> None:
    """Encodes, tunes, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=default_checkpoint())
    parser.add_argument("--scenes", type=int, default=1_000, help="of val and of test")
    parser.add_argument("--train-scenes", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=0, help="of LeaPRR, instead")
    parser.add_argument("--width", type=int, default=128, help="of LeaPRR's code profile")
    arguments = parser.parse_args()
    start_time = time.monotonic()
    checkpoint = load_checkpoint(arguments.checkpoint)
    dev, test = (encoded(checkpoint, split, arguments.scenes) for split in ("val", "test"))
    rows = [("BE", "", recalls(_orders(lambda side: retrieve_order(side.base), test), test))]
    if not arguments.epochs:
        rows += tuned(dev, test)
    else:
        train = encoded(checkpoint, "train", arguments.train_scenes)
        rows += learned(train, dev, test, arguments.epochs, arguments.width)
    seconds = round(time.monotonic() - start_time)
    about: Mapping[str, object] = {"texts": len(test.texts), "seconds": seconds}
    print(json.dumps({**about, "rows": rows}))
    header = " | ".join(f"{name} R@{k}" for name in ("i2t", "t2i") for k in RECALL_AT)
    print(f"| method | setting | {header} | rSum |")
    print("| --- | --- |" + " --- |" * 7)
    for row in rows:
        print(_row(*row))


if __name__ == "__main__":
    main()
