"""How networks of the zoo compare, and how far seeds alone move a figure.

    python -m benchmarks.bench.zoo RUNS.jsonl --networks vse_pp vse_infinity --seeds 10
    python -m benchmarks.bench.zoo RUNS.jsonl --corpus emoji --test-split test_style
    python -m benchmarks.bench.zoo RUNS.jsonl --report --plot spread.png

Every run sees the same English scenes over the bundled model's frozen grid, and has the same
rounds, batches, rates and width: no network is tuned. Runs differ by their seed, which draws the
weights and the batches. A run is a line of RUNS.jsonl, and one that is there is not repeated, so a
stopped benchmark continues. The figures are of the last round, on scenes of "test" with one caption
each, so that nothing is chosen by them.

--corpus takes another corpus, whose pictures a frozen EfficientNet-Lite0 reads; --image-source
patches takes plain patches of 16 pixels instead of a frozen network's grid; --val-families adds
scenes of "val" to those of training. A file of runs is of one corpus, one size and one source.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from tokenizers import Tokenizer

from benchmarks.support.zoo_pictures import PicturePart, pictures_of
from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import scene_pixels
from tandem.corpus.scenes.records import scene_families
from tandem.corpus.scenes.scene import Scene
from tandem.lab.training.data.batches import ImageTextBatch, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.optimisation import check_loss, recipe_optimiser, recipe_schedule, step
from tandem.lab.training.recipes.named_recipes import zoo
from tandem.lab.training.recipes.recipe import Recipe, ZooRecipe
from tandem.lab.training.sources.scene_pairs import ScenePairs
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.starting_model import in_its_shape
from tandem.lab.training.zoo_training import starting_zoo_model, zoo_groups, zoo_loss, zoo_recall
from tandem.lab.zoo.config import ZooName
from tandem.lab.zoo.network import ZooNetwork
from tandem.lab.zoo.word_readers import TransformerWords
from tandem.lab.zoo.zoo_model import NETWORKS, ZooModel
from tandem.modeling.config import JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.image_sources.image_tokens import Backbone

HINGES = ("all", "hardest", "all_then_hardest")
DATA_SEED = 1
WIDTH = 64
BATCH = 24
POINTS = (1.0, 2.0, 5.0)
LEAST_SEEDS = 3
# Two-sided 5 % and a power of 80 %, of two means of as many seeds each.
_NEEDED = 2 * (1.96 + 0.84) ** 2


@dataclass(frozen=True, slots=True)
class RunName:
    """Identifies one run."""

    network: str
    hinges: str
    reader: str
    seed: int


class EnglishPairs(ScenePairs):
    """Scenes with their English captions alone."""

    def __init__(self, families: Sequence[tuple[Scene, ...]]) -> None:
        super().__init__(families)
        self._captions = [captions_of(scene, "en") for family in families for scene in family]

    def captions(self, number: int) -> Sequence[str]:
        """Returns all of a scene's."""
        return self._captions[number]

    def caption(self, number: int, rng: random.Random) -> str:
        """Draws one."""
        return rng.choice(self._captions[number])


class EnglishSource(SceneSource):
    """Gives a vocabulary of English words alone."""

    def texts(self, recipe: Recipe) -> Iterator[str]:
        """Yields the captions of all training scenes."""
        for family in families_of("train", recipe.pool_family_count):
            for scene in family:
                yield from captions_of(scene, "en")


@dataclass(frozen=True, slots=True)
class Bench:
    """Holds what all runs of one text reader share."""

    model: ZooModel
    pool: PairPool
    test: ImageTextBatch


def families_of(split: Any, count: int) -> list[tuple[Scene, ...]]:  # noqa: ANN401
    """Returns the first families of a split."""
    return list(islice(scene_families(split, DATA_SEED), count))


def bench_of(recipe: ZooRecipe, test_family_count: int, val_family_count: int = 0) -> Bench:
    """Computes the image tokens, and makes the model that gives inputs and published weights.

    Families of "val" are added to those of training; words are those of training.
    """
    shaped = in_its_shape(recipe, default_checkpoint())
    model, tokenizer = starting_zoo_model(
        shaped,
        default_checkpoint(),
        lambda: train_tokenizer(EnglishSource().texts(shaped), shaped.vocabulary_size),
    )
    train = families_of("train", recipe.pool_family_count) + families_of("val", val_family_count)
    test = families_of("test", test_family_count)
    images = HeldImages(tokens_of(train, model.image_backbone))
    pool = PairPool(EnglishPairs(train), images, tokenizer, model.config.max_text_tokens)
    return Bench(model, pool, test_set(test, model.image_backbone, tokenizer, model.config))


@torch.inference_mode()
def tokens_of(families: Sequence[tuple[Scene, ...]], backbone: Backbone) -> torch.Tensor:
    """Returns the grids of all scenes, float16 [N, R, I]."""
    scenes = [scene for family in families for scene in family]
    rows = []
    for start in range(0, len(scenes), 64):
        pixels = [torch.from_numpy(scene_pixels(each).copy()) for each in scenes[start:][:64]]
        rows.append(backbone(torch.stack(pixels)))
    return torch.cat(rows)


def test_set(
    families: Sequence[tuple[Scene, ...]],
    backbone: Backbone,
    tokenizer: Tokenizer,
    config: JointConfig,
) -> ImageTextBatch:
    """Returns every scene with its first caption."""
    captions = [captions_of(scene, "en")[0] for family in families for scene in family]
    tokens = tokens_of(families, backbone)
    mask = torch.ones(tokens.shape[:2], dtype=torch.int64)
    return ImageTextBatch(tokenize(tokenizer, captions, config.max_text_tokens), tokens, mask)


def measured(name: RunName, bench: Bench, recipe: ZooRecipe) -> dict[str, Any]:
    """Trains one network from its seed, and returns its recalls in percent and what it cost."""
    began = time.process_time()
    torch.manual_seed(name.seed)
    config = replace(bench.model.zoo, model=name.network)  # type: ignore[arg-type]
    network = NETWORKS[config.model](config)
    _start_words(network, bench.model.network)
    rng = random.Random(f"bench zoo/{name.seed}")
    optimiser = recipe_optimiser(zoo_groups(network, recipe), recipe.head_learning_rate, recipe)
    schedule = recipe_schedule(optimiser, recipe.round_count, recipe)
    network.train()
    for number in range(1, recipe.round_count + 1):
        optimiser.zero_grad(set_to_none=True)
        loss = zoo_loss(network, bench.pool.match_batch(rng, recipe.be_batch_size), recipe, number)
        loss.backward()
        check_loss(name.network, loss.item())
        step(optimiser, recipe.gradient_clip_norm)
        schedule.step()
    trained = time.process_time() - began
    recall = zoo_recall(network, bench.test)
    return {
        **asdict(name),
        "rounds": recipe.round_count,
        "cpu_seconds": round(trained, 1),
        "parameters": sum(each.numel() for each in network.parameters()),
        "mean_recall": recall.ce_mean_recall if network.scores_pairs else recall.be_mean_recall,
        "t2i_r1": recall.ce_r1 if network.scores_pairs else recall.be_r1,
    }


def _start_words(network: ZooNetwork, published: ZooNetwork) -> None:
    """Gives a published text encoder's layers to the network, frozen."""
    ours, theirs = (
        [each for each in one.modules() if isinstance(each, TransformerWords)]
        for one in (network, published)
    )
    for mine, other in zip(ours, theirs, strict=False):
        mine.trunk.load_state_dict(other.trunk.state_dict())
        mine.trunk.requires_grad_(False)


def recipe_of(hinges: str, rounds: int, families: int, pretrained: str) -> ZooRecipe:
    """Returns the budget that every network has."""
    return replace(
        zoo(DATA_SEED),
        embedding_width=WIDTH,
        vocabulary_size=600,
        be_batch_size=BATCH,
        round_count=rounds,
        warm_up_step_count=20,
        head_learning_rate=2e-3,
        hinges="all" if hinges == "all" else "hardest",
        all_hinges_round_count=rounds // 4 if hinges == "all_then_hardest" else 0,
        pool_family_count=families,
        pretrained=pretrained,
        zoo_text_reader="transformer" if pretrained else "gru",
        has_frozen_text=bool(pretrained),
    )


def over_patches(recipe: ZooRecipe) -> ZooRecipe:
    """Returns the budget over plain patches, which the network alone learns to read."""
    return replace(recipe, image_source="patches", begins_with_backbone=False)


def of_pictures(recipe: ZooRecipe, image_size: int) -> ZooRecipe:
    """Returns the budget over pictures of another corpus, whose captions have more words."""
    return replace(
        recipe,
        image_source="efficientnet_lite0",
        begins_with_backbone=False,
        image_size=image_size,
        picture_fit="squash",
        vocabulary_size=4_000,
    )


def done_in(path: Path) -> list[dict[str, Any]]:
    """Returns the runs of a file, none if it is missing."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def report(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields a table of means and spreads, and of how many seeds a difference needs."""
    points = " | ".join(f"seeds for {point:g}" for point in POINTS)
    first = "| network | hinges | text | seeds | mR | std | min to max | t2i R@1 |"
    yield f"{first} {points} | CPU s |"
    yield "|" + " --- |" * (9 + len(POINTS))
    for key, group in grouped(runs).items():
        values = [run["mean_recall"] for run in group]
        # Two seeds say nothing of a spread.
        spread = stdev(values) if len(values) >= LEAST_SEEDS else None
        shown = "" if spread is None else f"{spread:.1f}"
        needed = [str(seeds_needed(spread, point)) if spread else "" for point in POINTS]
        at_1 = fmean(run["t2i_r1"] for run in group)
        yield (
            f"| {' | '.join(key)} | {len(values)} | {fmean(values):.1f} | {shown} | "
            f"{min(values):.1f} to {max(values):.1f} | {at_1:.1f} | {' | '.join(needed)} | "
            f"{fmean(run['cpu_seconds'] for run in group):.0f} |"
        )


def grouped(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Returns the runs of each network, hinges and text reader, in order of appearance."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["network"], run["hinges"], run["reader"]), []).append(run)
    return groups


def seeds_needed(spread: float, points: float) -> int:
    """Returns how many seeds of each of two systems show a difference of so many points.

    Two-sided at 5 % with a power of 80 %, by the normal approximation, and two at least.

    >>> seeds_needed(2.0, 2.0)
    16
    """
    return max(2, int(-(-_NEEDED * (spread / points) ** 2 // 1)))


def plot(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws a violin of the mean recall for each group with three seeds at least."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups = {key: group for key, group in grouped(runs).items() if len(group) >= LEAST_SEEDS}
    values = [[run["mean_recall"] for run in group] for group in groups.values()]
    names = ["\n".join([key[0], *key[1:]]) for key in groups]
    figure, axes = plt.subplots(figsize=(max(6.0, 1.1 * len(groups)), 4.2))
    axes.violinplot(values, showmeans=True)
    for place, each in enumerate(values, start=1):
        axes.scatter([place] * len(each), each, s=10, color="black", zorder=3)
    axes.set_xticks(range(1, len(names) + 1), names, fontsize=7)
    axes.set_ylabel("mean recall on test scenes, %")
    axes.set_title("Each point is a seed", fontsize=9)
    axes.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Trains what is missing, or prints and draws what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="file of runs, a line each")
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=["vse_pp"])
    parser.add_argument("--hinges", nargs="+", choices=HINGES, default=list(HINGES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--families", type=int, default=400, help="of training, four scenes each")
    parser.add_argument("--test-families", type=int, default=50)
    parser.add_argument("--val-families", type=int, default=0, help="of val, trained on too")
    parser.add_argument("--width", type=int, default=WIDTH, help="of embeddings")
    parser.add_argument("--batch", type=int, default=BATCH, help="pairs a step")
    parser.add_argument("--corpus", default="scenes", help="as tandem train takes it")
    parser.add_argument("--test-split", default="val", help="with --corpus")
    parser.add_argument("--language", default="en", help="with --corpus")
    parser.add_argument("--pictures", type=int, default=1_000, help="with --corpus: of training")
    parser.add_argument("--test-pictures", type=int, default=300, help="with --corpus")
    parser.add_argument("--image-size", type=int, default=224, help="with --corpus: side, pixels")
    parser.add_argument(
        "--image-source",
        choices=("network", "patches"),
        default="network",
        help="a frozen network's grid, or plain patches",
    )
    parser.add_argument("--from", dest="pretrained", default="", help="published text encoder")
    parser.add_argument("--report", action="store_true", help="print what is there")
    parser.add_argument("--plot", type=Path, help="with --report: draw violins")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = done_in(arguments.runs)
    if arguments.report:
        print("\n".join(report(runs)))
        if arguments.plot:
            plot(runs, arguments.plot)
        return
    reader = "frozen" if arguments.pretrained else "gru"
    done = {tuple(run[key] for key in ("network", "hinges", "reader", "seed")) for run in runs}
    corpus, language = arguments.corpus, arguments.language
    train = PicturePart(corpus, "train", arguments.pictures, language)
    test = PicturePart(corpus, arguments.test_split, arguments.test_pictures, language)
    bench: Bench | None = None
    networks: list[ZooName] = arguments.networks
    for seed, network, hinges in product(range(1, arguments.seeds + 1), networks, arguments.hinges):
        name = RunName(network, hinges, reader, seed)
        if (network, hinges, reader, seed) in done:
            continue
        recipe = recipe_of(hinges, arguments.rounds, arguments.families, arguments.pretrained)
        recipe = replace(recipe, embedding_width=arguments.width, be_batch_size=arguments.batch)
        is_of_scenes = corpus == "scenes"
        if not is_of_scenes:
            recipe = of_pictures(recipe, arguments.image_size)
        if arguments.image_source == "patches":
            recipe = over_patches(recipe)
        bench = bench or (
            bench_of(recipe, arguments.test_families, arguments.val_families)
            if is_of_scenes
            else Bench(*pictures_of(recipe, train, test, default_checkpoint()))
        )
        run = measured(name, bench, recipe)
        print(run, flush=True)
        with arguments.runs.open("a") as file:
            file.write(json.dumps(run) + "\n")


if __name__ == "__main__":
    main()
