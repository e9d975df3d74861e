"""The two profiles, and where they differ."""

from dataclasses import fields, replace

import pytest

from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.refinement import LeaprrModel


def test_every_named_difference_is_one() -> None:
    """A field without a default has another value in each profile; one with a default the same."""
    paper, code = leaprr_config("paper"), leaprr_config("code")
    differing = {
        field.name
        for field in fields(paper)
        if getattr(paper, field.name) != getattr(code, field.name)
    }
    defaulted = {
        field.name for field in fields(paper) if field.default is not field.default_factory
    }

    assert len(differing) == 16
    assert not differing & defaulted
    assert differing | defaulted == {field.name for field in fields(paper)}


def test_another_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 'paper' or 'code'"):
        leaprr_config("thesis")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": float("inf")}, "learning_rate is inf; it must be finite"),
        ({"triplet_weight": float("inf")}, "triplet_weight is inf; it must be finite"),
        ({"contrastive_weight": -1.0}, "contrastive_weight is -1.0; it must be 0 or more"),
        ({"margin": float("nan")}, "margin is nan; it must be 0 or more"),
        ({"fixed_threshold_nodes": (32, 0)}, r"\(32, 0\); both must be 1 or more"),
        ({"layer_count": 10**9}, r"layer_count 1000000000, .* make 7.1e\+15 weights a direction"),
        ({"width": None, "head_count": 1, "pillar_count": 10**6}, "pillar_count 1000000 make"),
        (
            {
                "contrastive_weight": 0.0,
                "triplet_weight": 0.0,
                "alignment_weight": 0.0,
                "has_raw_hinge": False,
            },
            "the weights of all losses are 0",
        ),
    ],
)
def test_a_value_that_trains_nothing_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(leaprr_config("code"), **change)  # type: ignore[arg-type]


def test_the_code_has_the_published_number_of_parameters() -> None:
    """14.4 million a direction and 28.7 in total.

    By hand: norms 256, projection 99,072, two blocks of 7,087,872, reconstruction 98,432.
    """
    by_hand = 256 + 99_072 + 2 * 7_087_872 + 98_432

    assert LeaprrModel.untrained(leaprr_config("code"), seed=0).parameter_count() == 2 * by_hand
    assert round(by_hand / 1e6, 1) == 14.4
    assert round(2 * by_hand / 1e6, 1) == 28.7
