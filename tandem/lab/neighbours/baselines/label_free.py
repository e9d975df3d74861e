"""Names the nine methods without labels of LeaPRR's Table 1, and chooses their settings on dev.

Neither publication states k and alpha of the expansions, so each method has a small grid; the
setting with the highest rSum on dev is taken, and never one chosen on test. Expansions and
augmentations read embeddings, so they apply only to a bi-encoder's order. Shapes: Q queries, N
items, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Final

from tandem.lab.evaluation.metrics import RECALL_AT, recall_at
from tandem.lab.evaluation.ranking import Order, first_answer_ranks, retrieve_order
from tandem.lab.neighbours.baselines.diffusion import (
    DiffusionSettings,
    diffuse,
    diffuse_spectrally,
)
from tandem.lab.neighbours.baselines.expansion import (
    WeightsOf,
    decayed_weights,
    equal_weights,
    expand_in_sequence,
    expand_jointly,
    expand_queries,
    power_weights,
)
from tandem.lab.neighbours.baselines.reciprocal_neighbours import (
    rerank_by_similar_queries,
    rerank_reciprocally,
)
from tandem.lab.neighbours.lists.corpus_neighbours import CorpusNeighbours
from tandem.lab.neighbours.lists.neighbour_lists import Scores, order_with_base

NEIGHBOUR_COUNTS: Final = (1, 3, 10)
ALPHAS: Final = (1.0, 3.0, 9.0)
GRAPH_COUNTS: Final = (10, 50)
SEED_COUNTS: Final = (3, 10)
POOL_SIZES: Final = (5, 10, 20)
SIMILAR_COUNTS: Final = (1, 4)


@dataclass(frozen=True, slots=True)
class SearchSide:
    """One direction of a corpus: its queries, its items, and the right answers."""

    base: Scores
    """[Q, N], the base's similarities."""
    queries: Scores
    """[Q, D]."""
    items: Scores
    """[N, D]."""
    answers: Sequence[set[int]]

    @property
    def ranks(self) -> list[int]:
        """Ranks of the base order."""
        return self.ranks_of(retrieve_order(self.base))

    def ranks_of(self, order: Order) -> list[int]:
        """Returns the rank of each query's best answer, from 1."""
        return first_answer_ranks(order, self.answers)


OrderOf = Callable[[SearchSide], Order]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a method."""

    text: str
    """For people, such as "k 10"."""
    neighbour_count: int
    """An item's or a query's, so that there must be more of both modalities than these."""
    order_of: OrderOf

    def check_fits(self, method: str, image_count: int, text_count: int) -> None:
        """Raises ValueError for a gallery of too few items."""
        if min(image_count, text_count) <= self.neighbour_count:
            raise ValueError(
                f"{method} with {self.text}, as chosen on dev, needs more than "
                f"{self.neighbour_count} images and texts, and a gallery has {image_count} and "
                f"{text_count}: measure a larger gallery, in fewer folds, or leave out {method}"
            )


def search_sides(neighbours: CorpusNeighbours) -> tuple[SearchSide, SearchSide]:
    """Returns both directions: images that find texts, and texts that find images."""
    image_of_text = neighbours.image_of_text.tolist()
    texts_of: list[set[int]] = [set() for _ in neighbours.image_ids]
    for text, image in enumerate(image_of_text):
        texts_of[image].add(text)
    images, texts = neighbours.images.astype(float), neighbours.texts.astype(float)
    cross_IT = neighbours.cross_similarity()
    return (
        SearchSide(cross_IT, images, texts, texts_of),
        SearchSide(cross_IT.T, texts, images, [{image} for image in image_of_text]),
    )


def tuned(method: str, dev: CorpusNeighbours) -> Setting:
    """Returns the setting of the method with the highest rSum on dev; the first among equals.

    A setting that needs more items than dev has is left out. Raises ValueError for an unknown
    method, one that does not apply to the base, and a dev on which none is left.
    """
    if method not in METHODS:
        raise ValueError(f"no method {method!r}; there are {', '.join(METHODS)}")
    if dev.pool_size and method in EXPANSIONS:
        raise ValueError(f"{method} expands embeddings, which {dev.base} does not order by")
    sides = search_sides(dev)
    smallest = min(len(dev.images), len(dev.texts))
    fitting = [each for each in METHODS[method]() if each.neighbour_count < smallest]
    if not fitting:
        raise ValueError(f"dev has {smallest} items, too few for any setting of {method}")
    return max(fitting, key=lambda each: _recall_sum(sides, each.order_of))


def _recall_sum(sides: Sequence[SearchSide], order_of: OrderOf) -> float:
    return sum(
        recall_at(side.ranks_of(order_of(side)), k).percent for side in sides for k in RECALL_AT
    )


Grid = Callable[[], list[Setting]]


Expand = Callable[[Scores, Scores, int, WeightsOf], tuple[Scores, Scores]]
"""Gives expanded queries and items by their k nearest."""

_WEIGHTS: Final[Mapping[str, list[tuple[str, WeightsOf]]]] = {
    "equal": [("", equal_weights)],
    "decayed": [("", decayed_weights)],
    "alpha": [(f", alpha {alpha:g}", power_weights(alpha)) for alpha in ALPHAS],
}


def _expansions(kind: str, expand: Expand) -> Grid:
    def order_of(k: int, weights_of: WeightsOf) -> OrderOf:
        def order(side: SearchSide) -> Order:
            queries, items = expand(side.queries, side.items, k, weights_of)
            return retrieve_order(queries @ items.T)

        return order

    return lambda: [
        Setting(f"k {k}{suffix}", k, order_of(k, weights_of))
        for (suffix, weights_of), k in product(_WEIGHTS[kind], NEIGHBOUR_COUNTS)
    ]


def _queries_alone(
    queries: Scores, items: Scores, k: int, weights_of: WeightsOf
) -> tuple[Scores, Scores]:
    return expand_queries(queries, items, k, weights_of), items


def _graph_settings(diffused: Callable[[Scores, Scores, DiffusionSettings], Scores]) -> Grid:
    def order_of(settings: DiffusionSettings) -> OrderOf:
        return lambda side: order_with_base(
            diffused(side.base, side.items @ side.items.T, settings), side.base
        )

    return lambda: [
        Setting(
            f"k {each.k}, query k {each.query_k}, alpha {each.alpha}",
            max(each.k, each.query_k),
            order_of(each),
        )
        for each in starmap(DiffusionSettings, product(GRAPH_COUNTS, SEED_COUNTS))
    ]


def _reciprocal() -> list[Setting]:
    def order_of(k: int) -> OrderOf:
        return lambda side: rerank_reciprocally(side.base, k)

    return [Setting(f"k {k}", k, order_of(k)) for k in POOL_SIZES]


def _by_similar_queries() -> list[Setting]:
    def order_of(k: int, near: int) -> OrderOf:
        return lambda side: rerank_by_similar_queries(
            side.base, k, side.queries @ side.queries.T, near
        )

    return [
        Setting(f"k {k}, {near} queries", max(k, near), order_of(k, near))
        for k, near in product(POOL_SIZES, SIMILAR_COUNTS)
    ]


EXPANSIONS: Final[Mapping[str, Grid]] = {
    "aqe": _expansions("equal", _queries_alone),
    "aqewd": _expansions("decayed", _queries_alone),
    "alpha-qe": _expansions("alpha", _queries_alone),
    "adba-aqe-sequence": _expansions("equal", expand_in_sequence),
    "adbawd-aqewd-sequence": _expansions("decayed", expand_in_sequence),
    "alpha-dba-qe-sequence": _expansions("alpha", expand_in_sequence),
    "adba-aqe-joint": _expansions("equal", expand_jointly),
    "adbawd-aqewd-joint": _expansions("decayed", expand_jointly),
    "alpha-dba-qe-joint": _expansions("alpha", expand_jointly),
}
"""Methods that expand embeddings."""

METHODS: Final[Mapping[str, Grid]] = {
    **EXPANSIONS,
    "dfs": _graph_settings(diffuse),
    "fsr": _graph_settings(diffuse_spectrally),
    "krnn": _reciprocal,
    "krnn-similar": _by_similar_queries,
}
