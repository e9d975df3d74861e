"""Measures what the scores of a served index mean, by queries whose answers are known.

Shapes: Q queries, K candidates.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from tandem.client import Client, FoundItem, SearchResult, TruncationPolicy
from tandem.contract.limits import MAX_RERANK_K
from tandem.contract.modality import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.query import StoredItem
from tandem.contract.search.score_calibration import (
    BI_ENCODER,
    MAX_NULL_SCORE_COUNT,
    ScoreCalibration,
)
from tandem.corpus.judged_queries import JudgedQuery
from tandem.corpus.records import Record
from tandem.errors import RerankUnavailable, Uncalibrated
from tandem.installation import __version__
from tandem.lab.evaluation.calibration.held_out_pools import Floats, HeldOutPools
from tandem.lab.evaluation.calibration.probability_fit import ProbabilityQuality, fit_scaling
from tandem.model_io.texts.visible_text import folded_text


@dataclass(frozen=True, slots=True)
class MeasuredScores:
    """Holds what was measured of one scorer in one direction."""

    calibration: ScoreCalibration
    quality: ProbabilityQuality | None
    """Of probabilities on queries that the fit did not see; None of the bi-encoder."""
    best_scores: Floats
    """The best score of each query that has an answer in the index, with its answers there."""

    def answered_share(self, rate: float) -> float | None:
        """Returns how many of the queries with an answer get any; None without enough scores."""
        try:
            return float((self.best_scores > self.calibration.threshold(rate)).mean())
        except Uncalibrated:
            return None


class _Searched(NamedTuple):
    relevant_ids: frozenset[str]
    result: SearchResult
    items: Sequence[FoundItem]
    """In retrieval order: rerank_k of them and as many more as the query has answers."""


def captioned_queries(records: Iterable[Record]) -> list[JudgedQuery]:
    """Returns each caption and each picture of an ingested corpus as a query for the others.

    What a query is true of is relevant: pictures that share a caption are.
    """
    chosen = list(records)
    pictures: dict[str, dict[str, int]] = defaultdict(dict)
    captions: dict[str, dict[str, int]] = defaultdict(dict)
    for record in chosen:
        for caption in record.captions:
            pictures[folded_text(caption.text)][record.record_id] = 1
            captions[folded_text(caption.text)][caption.caption_id] = 1
    queries = []
    for record in chosen:
        texts = [folded_text(caption.text) for caption in record.captions]
        queries += [
            JudgedQuery(caption.caption_id, caption.text, Modality.IMAGE, pictures[text])
            for caption, text in zip(record.captions, texts, strict=True)
        ]
        relevant = {name: 1 for text in texts for name in captions[text]}
        queries.append(JudgedQuery(record.record_id, record.image, Modality.TEXT, relevant))
    return queries


def measured_scores(
    client: Client,
    queries: Sequence[JudgedQuery],
    *,
    index_id: str,
    rerank_k: int = 20,
    hybrid: bool = False,
    concurrency: int = 4,
    on_answer: Callable[[], None] = lambda: None,
) -> list[MeasuredScores]:
    """Returns what the scores of the index mean, of each direction and scorer.

    Raises the TandemError of a search that fails, and ValueError where nothing can be said: no
    query has an answer in the index, a cross-encoder prefers what does not match, another model
    began to serve, or a query is a stored item.
    """

    def search(query: JudgedQuery) -> _Searched:
        k = rerank_k + len(query.relevant_ids)
        if isinstance(query.content, StoredItem):
            raise ValueError(f"query {query.query_id} is a stored item, whose answers include it")
        if k > MAX_RERANK_K:
            raise ValueError(f"query {query.query_id} has {len(query.relevant_ids)} answers")
        # Its answers would hide as many others.
        result = client.search(
            query.sent(),
            index_id=index_id,
            target_modality=query.target,
            retrieve_k=k,
            rerank_k=k,
            return_n=k,
            hybrid=hybrid,
            full_coverage_required=True,
            truncation_policy=TruncationPolicy.TRUNCATE,
        )
        if result.rerank.stop.is_short:
            raise RerankUnavailable(
                stop=result.rerank.stop, reranked_depth=result.rerank.reranked_depth, rerank_k=k
            )
        on_answer()
        items = sorted(result.items, key=lambda item: item.retrieve_rank)
        return _Searched(query.relevant_ids, result, items)

    with ThreadPoolExecutor(concurrency) as threads:
        answers = list(threads.map(search, queries))
    by_direction: dict[tuple[Modality, Modality], list[_Searched]] = defaultdict(list)
    for query, answer in zip(queries, answers, strict=True):
        asking = Modality.TEXT if isinstance(query.content, str) else Modality.IMAGE
        by_direction[asking, query.target].append(answer)
    measured = []
    for direction, searched in by_direction.items():
        is_scored = searched[0].result.rerank.stop is RerankStopReason.COMPLETE
        if not hybrid:
            measured.append(_measured(direction, searched, rerank_k, is_scored=False))
        if is_scored:
            whole = _measured(direction, searched, rerank_k, is_scored=True)
            measured.append(replace(whole, calibration=replace(whole.calibration, hybrid=hybrid)))
    return measured


def _measured(
    direction: tuple[Modality, Modality],
    searched: Sequence[_Searched],
    rerank_k: int,
    *,
    is_scored: bool,
) -> MeasuredScores:
    models = {
        (each.model_fingerprint, each.model_version, each.rerank.reranker)
        for each in (answer.result for answer in searched)
    }
    if len(models) > 1:
        raise ValueError("another model began to serve meanwhile; repeat the command")
    [(fingerprint, version, reranker)] = models
    null, best = [], []
    for answer in searched:
        scores = {
            each.item_id: score
            for each in answer.items
            if (score := each.match_logit if is_scored else each.similarity) is not None
        }
        others = [score for item_id, score in scores.items() if item_id not in answer.relevant_ids]
        null += [max(others[:rerank_k])] if others else []
        if answer.relevant_ids & scores.keys():
            best.append(max(list(scores.values())[:rerank_k]))
    if not best:
        raise ValueError("no query found its answer: are these the queries of this index?")
    # Any of them: a part that depends on the scores would not be like a new query's.
    kept = np.random.default_rng(1).permutation(len(null))[:MAX_NULL_SCORE_COUNT]
    scalings, quality = _scaling(searched, rerank_k) if is_scored else ((None, None), None)
    calibration = ScoreCalibration(
        model_fingerprint=fingerprint,
        query_modality=direction[0],
        target_modality=direction[1],
        scorer=reranker if is_scored else BI_ENCODER,
        model_version=version if is_scored else 0,
        probability_calibration=scalings[0],
        first_probability_calibration=scalings[1],
        calibration_error=quality.highest_error if quality else None,
        null_scores=tuple(sorted(null[number] for number in kept)),
        rerank_k=rerank_k if is_scored else 0,
        query_count=len(searched),
        item_count=searched[0].result.coverage.covered_item_count,
        measured_date=datetime.now(UTC).date().isoformat(),
        measured_by=f"tandem calibrate {__version__}",
    )
    return MeasuredScores(calibration, quality, np.array(best, np.float32))


def _scaling(
    searched: Sequence[_Searched], rerank_k: int
) -> tuple[tuple[ProbabilityCalibration, ProbabilityCalibration], ProbabilityQuality]:
    """Returns the scalings of all queries, and the errors of each half by the other's."""
    read = [
        [each for each in answer.items[:rerank_k] if each.match_logit is not None]
        for answer in searched
    ]
    # Pools are as long as the shortest: an item may have been deleted, or the index is small.
    k = min(map(len, read))
    shown = [sorted(items[:k], key=lambda item: item.final_rank) for items in read]
    figures_QKF = np.array(
        [
            [(e.similarity, e.match_logit, e.item_id in answer.relevant_ids) for e in items]
            for answer, items in zip(searched, shown, strict=True)
        ]
    )
    is_match_QK = figures_QKF[..., 2] > 0
    pools = HeldOutPools(figures_QKF[..., 0], figures_QKF[..., 1], is_match_QK, is_match_QK)
    is_half_Q = np.random.default_rng(2).permutation(len(read)) < len(read) // 2
    scaled_QK = np.empty_like(pools.match_logits)
    for is_fitted_Q in (is_half_Q, ~is_half_Q):
        of_all, of_first = _fitted(pools.only(is_fitted_Q))
        held_QK = pools.match_logits[~is_fitted_Q]
        scaled_QK[~is_fitted_Q] = of_all.scale * held_QK + of_all.bias
        scaled_QK[~is_fitted_Q, 0] = of_first.scale * held_QK[:, 0] + of_first.bias
    quality = ProbabilityQuality.of(
        ProbabilityCalibration(), replace(pools, match_logits=scaled_QK)
    )
    return _fitted(pools), quality


def _fitted(pools: HeldOutPools) -> tuple[ProbabilityCalibration, ProbabilityCalibration]:
    """Returns the scaling of all pairs, and that of the items that are shown first.

    At one logit the first matches far more often than another: it has won over the pool.
    """
    of_all = fit_scaling(pools.match_logits.ravel(), pools.is_match.ravel())
    try:
        return of_all, fit_scaling(pools.match_logits[:, 0], pools.is_match[:, 0])
    except ValueError:  # They are all alike, or their logits say nothing.
        return of_all, of_all
