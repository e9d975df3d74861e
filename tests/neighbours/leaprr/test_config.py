"""The two profiles, and where they differ."""

from dataclasses import fields

import pytest

from tandem.neighbours.leaprr.config import Profile, leaprr_config, with_settings
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
    ("profile", "settings", "named"),
    [
        ("code", ["margin"], "write it as field=value"),
        ("code", ["margn=1"], "LeaPRR has no field 'margn'; did you mean margin"),
        ("code", ["margin=1", "margin=2"], "margin is given twice"),
        ("code", ["margin=wide"], "margin is 'wide', not a number"),
        ("code", ["margin=nan"], "margin is NaN, not 0.0 to"),
        ("code", ["batch_size=2.5"], "batch_size is '2.5', not an integer"),
        ("code", ["batch_size=0"], "batch_size is 0, not 1 to"),
        ("code", ["scores_query=maybe"], "scores_query is 'maybe', not true or false"),
        ("code", ["pillar_rank=middle"], "'middle', not one of top, bottom, random"),
        ("code", ["fixed_threshold_nodes=3"], "not two integers with a comma"),
        ("code", ["fixed_threshold_nodes=32,0"], r"\(32, 0\); both must be 1 or more"),
        ("code", ["width=7"], "24 heads do not divide a width of 7"),
        ("code", ["triplet_weight=inf"], "triplet_weight is Infinity, not"),
        ("paper", ["reconstruction_weight=1"], "reconstruction_weight needs reconstructs"),
        (
            "paper",
            ["contrastive_weight=0", "triplet_weight=0", "alignment_weight=0"],
            "the weights of all losses are 0",
        ),
    ],
)
def test_a_setting_that_trains_nothing_is_named(
    profile: Profile, settings: list[str], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        with_settings(leaprr_config(profile), settings)


def test_each_kind_of_field_is_set() -> None:
    settings = ["margin=0.3", "batch_size=1_024", "scores_query=false", "head_count=1"]
    settings += ["fixed_threshold_nodes=9,5", "pillar_rank=bottom", "width = none"]

    changed = with_settings(leaprr_config("code"), settings)

    assert (changed.margin, changed.batch_size, changed.scores_query) == (0.3, 1024, False)
    assert (changed.fixed_threshold_nodes, changed.pillar_rank) == ((9, 5), "bottom")
    assert changed.width is None
    assert changed.layer_count == leaprr_config("code").layer_count


def test_the_code_has_the_published_number_of_parameters() -> None:
    """14.4 million a direction and 28.7 in total.

    By hand: norms 256, projection 99,072, two blocks of 7,087,872, reconstruction 98,432.
    """
    by_hand = 256 + 99_072 + 2 * 7_087_872 + 98_432

    assert LeaprrModel.untrained(leaprr_config("code"), seed=0).parameter_count() == 2 * by_hand
    assert round(by_hand / 1e6, 1) == 14.4
    assert round(2 * by_hand / 1e6, 1) == 28.7
