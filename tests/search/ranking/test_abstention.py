"""Items that a query without an answer may find are left out, as often as was promised."""

from dataclasses import replace

import numpy as np
import pytest

from tandem.contract.content import TextContent
from tandem.contract.fusion import FusionMethod
from tandem.contract.modality import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.query import Depth, RankingRule, SearchQuery, WeightedPart
from tandem.contract.search.score_calibration import (
    SCORE_CALIBRATION_WIRE,
    ScoreCalibration,
    calibrations_with,
)
from tandem.errors import RankingInvalid, RequestMalformed, Uncalibrated
from tandem.search.ranking.abstention import ScoreBar, scored_kind, with_probabilities
from tandem.search.ranking.ranking import rank_answer
from tandem.search.rerank.rerank import RerankOutcome
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

SIMILARITIES = ScoreCalibration(
    model_fingerprint="model-a",
    query_modality=Modality.TEXT,
    target_modality=Modality.IMAGE,
    null_scores=tuple(float(n) / 128 for n in range(99)),
)
LOGITS = replace(
    SIMILARITIES,
    scorer="model-a",
    model_version=1,
    null_scores=tuple(float(n) for n in range(19)),
    probability_calibration=ProbabilityCalibration(2.0, -1.0),
    rerank_k=20,
)
QUERY = SearchQuery(
    parts=(WeightedPart(TextContent("a cup")),),
    index_id="cups",
    target_modality=Modality.IMAGE,
    depth=Depth.of(None, None, None),
    ranking=RankingRule(max_false_answer_rate=0.05),
)
SCORED = RerankOutcome(
    RerankStopReason.TIME,
    matches={"a": Match(18.5, None), "b": Match(18.0, None)},
    model_version=1,
    reranker="model-a",
)
UNSCORED = RerankOutcome(RerankStopReason.UNAVAILABLE)
HITS = [Hit("a", 0.75), Hit("b", 0.74), Hit("c", 0.73)]


def bar_of(query: SearchQuery, outcome: RerankOutcome) -> ScoreBar:
    """Returns the bar over both calibrations."""
    bar = ScoreBar.of(query, outcome, (SIMILARITIES, LOGITS), SIMILARITIES.kind)
    assert bar is not None
    return bar


@pytest.mark.parametrize(
    ("rate", "threshold"), [(0.01, 98 / 128), (0.05, 94 / 128), (0.07, 92 / 128), (0.9999, 0.0)]
)
def test_the_threshold_is_worked_out_by_hand(rate: float, threshold: float) -> None:
    """Of 99 null scores a rate of 0.05 lets four be at least as high: (1 + 4) / 100."""
    assert SIMILARITIES.threshold(rate) == threshold


def test_too_few_null_scores_are_refused_with_the_number_that_it_takes() -> None:
    """99 scores cannot promise less than one in a hundred."""
    with pytest.raises(Uncalibrated, match="99 null scores were measured, and it takes 199"):
        SIMILARITIES.threshold(0.005)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_the_promise_holds_on_queries_never_seen(rate: float) -> None:
    """Over many draws of null scores and new queries, false answers are as often as promised."""
    random = np.random.default_rng(5)
    trials = []
    for _ in range(400):
        drawn = random.gumbel(size=299).astype(np.float32)
        kept = replace(SIMILARITIES, null_scores=tuple(sorted(drawn.tolist())))
        trials.append(float((random.gumbel(size=200) > kept.threshold(rate)).mean()))

    measured, deviation = float(np.mean(trials)), float(np.std(trials)) / 20
    assert abs(measured - rate) < 3 * deviation + 1 / 300
    # The control: a threshold at the quantile itself, without the new query among the scores.
    assert measured <= rate + 3 * deviation


def test_the_promise_holds_under_filters_where_far_candidates_score_higher() -> None:
    """A cross-encoder that prefers what is far; the control counts every candidate's logit."""
    random = np.random.default_rng(6)

    def asked(share: float) -> tuple[list[Hit], RerankOutcome, list[str]]:
        similarities = random.normal(size=400)
        logits = random.normal(size=400) - similarities
        order = np.argsort(-similarities).tolist()
        left = [n for n in order if random.random() < share][:20]
        hits = [Hit(f"i{n}", float(similarities[n])) for n in left]
        matches = {f"i{n}": Match(float(logits[n]), None) for n in left}
        return hits, replace(SCORED, matches=matches), [f"i{n}" for n in order]

    null = [max(each.logit for each in asked(1.0)[1].matches.values()) for _ in range(999)]
    kept = replace(LOGITS, null_scores=tuple(sorted(null)))
    for share in (0.5, 0.1, 0.01):
        false = []
        for _ in range(300):
            hits, outcome, unfiltered = asked(share)
            if not hits:
                continue
            bars = [
                ScoreBar.of(QUERY, outcome, [kept], SIMILARITIES.kind, ids)
                for ids in (unfiltered, None)
            ]
            false.append(
                [not bar.abstention(hits, outcome.matches).abstained for bar in bars if bar]
            )
        kept_rate, control = np.mean(false, axis=0)
        assert kept_rate < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(false))
        assert control > 0.10


def test_only_items_above_the_threshold_of_their_scorer_stay() -> None:
    """Where the cross-encoder scored, its logit counts, and items that it did not score go."""
    scored = bar_of(QUERY, SCORED)
    unscored = bar_of(QUERY, UNSCORED)

    by_logit = rank_answer(QUERY, HITS, SCORED.matches, bar=scored)
    by_similarity = rank_answer(QUERY, HITS, {}, bar=unscored)

    assert [(each.item_id, each.final_rank) for each in by_logit] == [("a", 1)]
    assert [each.item_id for each in by_similarity] == ["a", "b"]
    assert scored.abstention(HITS, SCORED.matches).scorer == "model-a"
    assert unscored.abstention(HITS[2:], {}).abstained
    assert not unscored.abstention([], {}).abstained


def test_a_search_without_null_scores_of_its_kind_is_refused() -> None:
    """Another scorer, direction, version, hybrid candidates, or more candidates have other ones."""
    deeper = replace(QUERY, depth=Depth.of(40, 30, None))
    other = replace(SCORED, model_version=2)
    for query, outcome in ((deeper, SCORED), (QUERY, other)):
        with pytest.raises(Uncalibrated):
            bar_of(query, outcome)
    texts = replace(SIMILARITIES.kind, target_modality=Modality.TEXT)
    with pytest.raises(Uncalibrated, match="no null scores of bi-encoder"):
        ScoreBar.of(QUERY, UNSCORED, (SIMILARITIES, LOGITS), texts)
    with pytest.raises(RankingInvalid, match="one part in one direction"):
        replace(QUERY, all_modalities_included=True)
    with pytest.raises(RankingInvalid, match="more than 0 and less than 1"):
        RankingRule(max_false_answer_rate=float("nan"))


def test_the_indexs_own_probabilities_take_the_place_of_the_models() -> None:
    """They are of the scorer that scored, and of no other; what is shown first has its own."""
    own = replace(LOGITS, first_probability_calibration=ProbabilityCalibration(1.0, -18.0))
    added = replace(QUERY, ranking=RankingRule(fusion=FusionMethod.LOGIT_ADD))
    nearer = [Hit("b", 0.95), Hit("a", 0.05)]

    def of(query: SearchQuery, hits: list[Hit], outcome: RerankOutcome) -> list[float | None]:
        rescaled = with_probabilities(query, hits, outcome, (SIMILARITIES, own), SIMILARITIES.kind)
        return [rescaled.matches[name].probability for name in ("a", "b")]

    assert of(QUERY, HITS, SCORED) == pytest.approx([1 / (1 + np.exp(-0.5)), 1.0])
    # 0.95 + 18 is more than 0.05 + 18.5.
    assert of(added, nearer, SCORED) == pytest.approx([1.0, 0.5])
    assert of(QUERY, HITS, replace(SCORED, reranker="model-b")) == [None, None]
    assert scored_kind(SIMILARITIES.kind, SCORED) == LOGITS.kind
    # A picture weighs most, and the cross-encoder reads the text.
    heaviest = replace(SIMILARITIES.kind, query_modality=Modality.IMAGE)
    assert scored_kind(heaviest, SCORED) == LOGITS.kind


def test_a_calibration_travels_and_replaces_the_one_of_its_kind() -> None:
    """Null scores arrive sorted; what is not finite, or turns the order, is refused."""
    message = SCORE_CALIBRATION_WIRE.to_proto(LOGITS)
    newer = replace(LOGITS, query_count=7)

    assert SCORE_CALIBRATION_WIRE.from_proto(message) == LOGITS
    assert calibrations_with((LOGITS, SIMILARITIES), (newer,)) == (SIMILARITIES, newer)
    with pytest.raises(RequestMalformed, match="not finite"):
        replace(LOGITS, null_scores=(float("nan"),))
    with pytest.raises(RequestMalformed, match="turns the order"):
        replace(LOGITS, first_probability_calibration=ProbabilityCalibration(-1.0, 0.0))
