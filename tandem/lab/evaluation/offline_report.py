"""Measures a checkpoint, or two, in this process and makes a report."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tandem.contract.content import Modality
from tandem.lab.evaluation.gallery import DIRECTIONS, Gallery
from tandem.lab.evaluation.offline import (
    Floats,
    Fusion,
    OfflineGallery,
    ScoredCheckpoint,
    ScoredPools,
)
from tandem.lab.evaluation.ranking import Order, all_answer_ranks
from tandem.lab.evaluation.reports.report import BE, Ranking, Report
from tandem.modeling.image_sources.image_tokens import RecordTokens


def add(similarity_QK: Floats, probability_QK: Floats, weight: float) -> Floats:
    """Returns the weighted sum of both scores (ADD; Geigle et al. 2022, section 6, equation 3).

    They are of each query's pool; a weight, the paper's lambda, of 1 uses only the similarity.
    """
    return weight * similarity_QK + (1 - weight) * probability_QK


def norm_add(similarity_QK: Floats, probability_QK: Floats, weight: float) -> Floats:
    """Returns the weighted sum of both, each scaled to 0 to 1 within its pool (NORM_ADD).

    The paper's first arXiv version (equations 4 to 6) subtracts the magnitude of the minimum, which
    differs if a similarity is negative. Its code fuses only the first fifth of the text queries, so
    the NORM_ADD figures of Table 9 for image retrieval are not those of this method.
    """
    return weight * _spread(similarity_QK) + (1 - weight) * _spread(probability_QK)


def _spread(scores_QK: Floats) -> Floats:
    low = scores_QK.min(axis=1, keepdims=True)
    width = scores_QK.max(axis=1, keepdims=True) - low
    # A pool of equal scores has no spread; all get the middle.
    return np.where(width > 0, (scores_QK - low) / np.where(width > 0, width, 1), 0.5)


FUSIONS: Mapping[str, Fusion] = {"add": add, "norm_add": norm_add}
# Weights of Geigle et al. 2022, Table 9.
FUSION_WEIGHTS = (0.1, 0.5, 0.9)

# Called with the direction and the number of its queries that were scored.
OnQuery = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class NamedOrder:
    """Holds one more order of a direction, made from the encoded gallery and its pools."""

    direction: str
    order_by: str
    k: int
    """Items that the cross-encoder scored per query; 0 for none."""
    order: Order


Reorder = Callable[[OfflineGallery, Mapping[str, ScoredPools]], Iterable[NamedOrder]]
"""Gives more orders, from the retriever's gallery and each direction's scored pools."""


def offline_report(  # noqa: PLR0913
    checkpoint: ScoredCheckpoint,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    about: Mapping[str, Any],
    *,
    retriever: ScoredCheckpoint | None = None,
    fusion_pool_size: int | None = None,
    images: RecordTokens | None = None,
    on_query: OnQuery = lambda *_: None,
    reorder: Reorder = lambda *_: (),
) -> Report:
    """Returns the report of a checkpoint, with pools by `retriever` if it is given (Sep+Coop).

    Every pool size but 0 is a ranking after the bi-encoder's, as is every fusion and weight over
    pools of `fusion_pool_size`. `images` replaces the pictures' own image tokens. `reorder` adds
    orders, such as those by neighbours, whose own time is not measured.
    """
    matcher = OfflineGallery(checkpoint, gallery, images, embeds=retriever is None)
    finder = OfflineGallery(retriever, gallery, images) if retriever else matcher
    depths = sorted(k for k in pool_sizes if k)
    largest = max([0, fusion_pool_size or 0, *depths])
    rankings: list[Ranking] = []
    directions: dict[str, _ScoredDirection] = {}
    scored_pools: dict[str, ScoredPools] = {}
    seconds: dict[str, dict[str, float]] = {}
    ties: dict[str, int] = {}
    for name, target in DIRECTIONS.items():
        pools = matcher.score(target, largest, partial(on_query, name), finder)
        scored = directions[name] = _ScoredDirection(name, pools, gallery, target)
        scored_pools[name] = pools
        rankings += scored.rankings(depths)
        if fusion_pool_size:
            rankings += scored.fused_rankings(fusion_pool_size)
        seconds[name] = asdict(pools.seconds) | {"all_pair_count": pools.similarity.size}
        ties[name] = pools.tied_count
    for more in reorder(finder, scored_pools):
        ranking = directions[more.direction].ranking(more.order_by, more.k, more.order)
        rankings.append(replace(ranking, query_seconds=None))
    rankings.sort(key=lambda each: list(DIRECTIONS).index(each.direction))
    languages = {name: gallery.languages(target) for name, target in DIRECTIONS.items()}
    if largest:
        # A pair has one logit, which serves both directions if both sides are queries.
        first, second = DIRECTIONS
        read_before = len(languages[first]) * len(languages[second])
        seconds[second] |= {"all_pair_count": seconds[second]["all_pair_count"] - read_before}
    else:
        for parts in seconds.values():
            for name in ("match_tokens", "match", "pair_count", "all_pair_count"):
                del parts[name]
    return Report(about, languages, tuple(rankings), seconds, ties)


class _ScoredDirection:
    def __init__(self, name: str, pools: ScoredPools, gallery: Gallery, target: Modality) -> None:
        self._name, self._pools = name, pools
        self._answers, self._pictures = gallery.answers(target), gallery.query_pictures(target)
        # A query encodes one content; all others are already in the index.
        seconds = pools.seconds
        self._be_seconds = seconds.retrieve / len(self._answers)
        self._ce_seconds = 0.0
        if target is Modality.IMAGE:
            self._be_seconds += seconds.encode_texts / len(gallery.pairs)
        else:
            self._be_seconds += seconds.encode_images / len(gallery.chosen)
            self._ce_seconds += seconds.match_tokens / len(gallery.chosen)

    def rankings(self, pool_sizes: Sequence[int]) -> Iterator[Ranking]:
        yield self.ranking(BE, 0, self._pools.retrieved)
        for k in pool_sizes:
            yield self.ranking(f"{BE} + CE {k}", k, self._pools.reranked(k))

    def fused_rankings(self, k: int) -> Iterator[Ranking]:
        for name, fuse in FUSIONS.items():
            for weight in FUSION_WEIGHTS:
                yield self.ranking(f"{name} {weight}", k, self._pools.fused(k, fuse, weight))

    def ranking(self, order_by: str, k: int, order: Order) -> Ranking:
        """Returns the ranks of an order, with the time of a query."""
        ranks = all_answer_ranks(order, self._answers)
        seconds = self._be_seconds
        if k:
            pair_count = min(k, order.shape[1])
            seconds += self._ce_seconds + pair_count * self._pools.seconds.per_pair
        return Ranking(
            self._name,
            order_by,
            k,
            tuple(each[0] for each in ranks),
            seconds,
            self._pictures,
            tuple(each[1:] for each in ranks),
        )
