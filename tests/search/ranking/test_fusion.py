"""Fused scores: equal to the evaluation's, and the sum of their terms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.fusion import FusionMethod
from tandem.contract.search.query import RankingRule
from tandem.lab.evaluation import offline_report as evaluated
from tandem.lab.evaluation.offline import Floats
from tandem.search.ranking.fusion import Fusion
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

Reference = Callable[[Floats, Floats, float], Floats]

similarities = st.floats(-1, 1, width=32)
logits = st.floats(-30, 30, width=32)
weights = st.floats(0, 1)


def match(logit: float) -> Match:
    """Returns the score of a logit, its probability as the wire carries it."""
    return Match(logit, float(np.float32(1 / (1 + math.exp(-logit)))))


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Hit], dict[str, Match]]:
    """Yields hits, of which the first few, at least one, are scored."""
    hits = [Hit(str(n), draw(similarities)) for n in range(draw(st.integers(1, 12)))]
    scored = hits[: draw(st.integers(1, len(hits)))]
    return hits, {hit.item_id: match(draw(logits)) for hit in scored}


@pytest.mark.parametrize(
    ("method", "reference"),
    [(FusionMethod.ADD, evaluated.add), (FusionMethod.NORMALISED_ADD, evaluated.norm_add)],
)
@given(pool=pools(), weight=weights)
def test_scores_are_those_that_evaluations_give(
    method: FusionMethod,
    reference: Reference,
    pool: tuple[list[Hit], dict[str, Match]],
    weight: float,
) -> None:
    """Over the candidates that were scored, to 1e-6; the evaluation weighs the similarity."""
    hits, matches = pool
    fusion = Fusion(RankingRule(fusion=method, cross_encoder_weight=weight), hits, matches)
    scored = [hit for hit in hits if hit.item_id in matches]

    expected = reference(
        np.array([[hit.similarity for hit in scored]]),
        np.array([[matches[hit.item_id].probability for hit in scored]]),
        1 - weight,
    )[0]

    assert [fusion.score(hit) for hit in scored] == pytest.approx(expected.tolist(), abs=1e-6)


@given(pools(), st.sampled_from(FusionMethod))
def test_a_score_is_the_sum_of_its_terms(
    pool: tuple[list[Hit], dict[str, Match]], method: FusionMethod
) -> None:
    hits, matches = pool
    fusion = Fusion(RankingRule(fusion=method), hits, matches)

    for hit in hits:
        score = math.fsum(term.value * term.weight for term in fusion.score_terms(hit))
        relevance = math.fsum(term.value * term.weight for term in fusion.relevance_terms(hit))
        assert score == pytest.approx(fusion.score(hit), abs=1e-6)
        assert relevance == pytest.approx(fusion.relevance(hit), abs=1e-6)
        assert -1 - 1e-6 <= relevance <= 1 + 1e-6


@given(pools(), st.sampled_from(FusionMethod))
def test_an_unscored_item_keeps_its_similarity(
    pool: tuple[list[Hit], dict[str, Match]], method: FusionMethod
) -> None:
    """It is not part of the pool."""
    hits, matches = pool
    fusion = Fusion(RankingRule(fusion=method), hits, matches)

    for hit in hits:
        if hit.item_id not in matches:
            assert fusion.score(hit) == hit.similarity
            assert [term.name for term in fusion.score_terms(hit)] == ["similarity"]


def test_a_pool_of_equals_gets_the_middle() -> None:
    hits = [Hit("a", 0.3), Hit("b", 0.3)]
    matches = {"a": Match(0.0, 0.5), "b": Match(2.0, 0.9)}
    rule = RankingRule(fusion=FusionMethod.NORMALISED_ADD, cross_encoder_weight=0.25)

    fusion = Fusion(rule, hits, matches)

    assert [fusion.score(hit) for hit in hits] == [0.75 * 0.5, 0.75 * 0.5 + 0.25]


def test_the_sum_with_the_logit_is_not_bounded_as_that_with_the_probability_is() -> None:
    hits = [Hit("a", 0.9), Hit("b", 0.1)]
    matches = {"a": match(6.0), "b": match(9.0)}

    by_logit, by_probability = (
        Fusion(RankingRule(fusion=method, cross_encoder_weight=1 / 3), hits, matches)
        for method in (FusionMethod.LOGIT_ADD, FusionMethod.ADD)
    )

    # Both probabilities are almost 1, so that there similarity decides.
    assert [by_logit.score(hit) for hit in hits] == pytest.approx([2.6, 3.2 - 0.4 / 3])
    assert by_probability.score(hits[0]) > by_probability.score(hits[1])
    assert by_logit.relevance(hits[0]) == by_probability.relevance(hits[0])


def test_the_cross_encoder_alone_scores_by_its_logit() -> None:
    fusion = Fusion(RankingRule(), [Hit("a", 0.3)], {"a": Match(2.0, 0.88)})

    assert fusion.score(Hit("a", 0.3)) == 2.0
    assert fusion.relevance(Hit("a", 0.3)) == 0.88
