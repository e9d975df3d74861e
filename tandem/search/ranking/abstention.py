"""Leaves out items whose scores a query without an answer may reach, so that it gets none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tandem.contract.search.answer import Abstention
from tandem.contract.search.query import SearchQuery
from tandem.contract.search.score_calibration import BI_ENCODER, ScoreCalibration, ScoreKind
from tandem.errors import Uncalibrated
from tandem.search.ranking.fusion import Fusion
from tandem.search.rerank.rerank import RerankOutcome
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """Tells the items that a query without an answer rarely finds from the others."""

    rate: float
    """Of the queries without an answer that find one, at most."""
    calibration: ScoreCalibration
    threshold: float
    scorable_ids: frozenset[str] | None = None
    """The items whose logits count; None if all do."""

    @classmethod
    def of(
        cls,
        query: SearchQuery,
        outcome: RerankOutcome,
        calibrations: Iterable[ScoreCalibration],
        kind: ScoreKind,
        unfiltered_ids: Sequence[str] | None = None,
    ) -> "ScoreBar | None":
        """Returns the bar for the scores that a search has; None if the query needs none.

        `kind` is the bi-encoder's. A cross-encoder's logits are compared where it scored anything.
        Under a filter it reads farther candidates, so `unfiltered_ids` are what the search finds
        without one, best first: only logits of those among which null scores were measured count.
        Raises Uncalibrated without null scores of that kind, with too few of them, or for more
        candidates than they were measured among.
        """
        rate = query.ranking.max_false_answer_rate
        if rate is None:
            return None
        if outcome.matches:
            kind = scored_kind(kind, outcome, is_hybrid=query.hybrid is not None)
        found = next(
            (each for each in calibrations if each.kind == kind and each.null_scores), None
        )
        what = f"max_false_answer_rate {rate:g}"
        if found is None:
            searches = "hybrid searches" if kind.hybrid else "searches"
            raise Uncalibrated(
                what=what,
                why=f"index {query.index_id} has no null scores of {kind.scorer} version "
                f"{kind.model_version} for {searches} of {kind.target_modality.value}s by "
                f"{kind.query_modality.value} under model {kind.model_fingerprint}",
            )
        if outcome.matches and query.depth.rerank_k > found.rerank_k:
            raise Uncalibrated(
                what=f"{what} with rerank_k {query.depth.rerank_k}",
                why=f"the null scores are of rerank_k {found.rerank_k}, and more candidates have "
                "higher ones",
            )
        scorable = None if unfiltered_ids is None else frozenset(unfiltered_ids[: found.rerank_k])
        return cls(rate, found, found.threshold(rate), scorable)

    def clears(self, hit: Hit, match: Match | None) -> bool:
        """Returns whether the item is shown."""
        if self.calibration.scorer == BI_ENCODER:
            # The null scores came in messages.
            return float(np.float32(hit.similarity)) > self.threshold
        is_scorable = self.scorable_ids is None or hit.item_id in self.scorable_ids
        return match is not None and match.logit > self.threshold and is_scorable

    def abstention(self, hits: Sequence[Hit], matches: Mapping[str, Match]) -> Abstention:
        """Returns what the answer says of it."""
        return Abstention(
            bool(hits) and not any(self.clears(hit, matches.get(hit.item_id)) for hit in hits),
            self.rate,
            self.calibration.scorer,
            self.threshold,
            len(self.calibration.null_scores),
        )


def scored_kind(kind: ScoreKind, outcome: RerankOutcome, *, is_hybrid: bool = False) -> ScoreKind:
    """Returns the kind of the logits that came of a rerank; `kind` is the bi-encoder's.

    A cross-encoder reads a text and an image, whichever part of a query is the heaviest.
    """
    return ScoreKind(
        model_fingerprint=kind.model_fingerprint,
        query_modality=kind.target_modality.other,
        target_modality=kind.target_modality,
        scorer=outcome.reranker,
        model_version=outcome.model_version,
        hybrid=is_hybrid,
    )


def with_probabilities(
    query: SearchQuery,
    hits: Sequence[Hit],
    outcome: RerankOutcome,
    calibrations: Iterable[ScoreCalibration],
    kind: ScoreKind,
) -> RerankOutcome:
    """Returns the outcome with probabilities of the index's own calibration, if there is one.

    It takes the place of the model's, which was fitted on other queries and items. The item that
    the answer shows first has one of its own.
    """
    own = scored_kind(kind, outcome)
    for each in calibrations:
        if each.kind == own and (scaling := each.probability_calibration):
            outcome = outcome.rescaled(scaling)
            if first_scaling := each.first_probability_calibration:
                rule = query.ranking
                rule = rule if rule.fusion else rule.by_default(outcome.default_fusion)
                scored = [hit for hit in hits if hit.item_id in outcome.matches]
                first = max(scored, key=Fusion(rule, scored, outcome.matches).score).item_id
                match = Match.of(outcome.matches[first].logit, first_scaling)
                outcome = replace(outcome, matches={**outcome.matches, first: match})
            break
    return outcome
