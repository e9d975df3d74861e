"""The two profiles, and where they differ."""

from dataclasses import fields

import pytest

from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config, with_settings
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel


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


def test_a_setting_of_no_network_is_named() -> None:
    refused: list[tuple[Profile, list[str], str]] = [
        ("code", ["margn=1"], "LeaPRR has no field 'margn'; did you mean margin"),
        ("code", ["batch_size=0"], "batch_size is 0; it must be 1 or more"),
        ("code", ["pillar_rank=middle"], "'middle', not one of top, bottom, random"),
        ("code", ["fixed_threshold_nodes=3"], "not two integers with a comma"),
        ("code", ["width=7"], "24 heads do not divide a width of 7"),
        ("paper", ["reconstruction_weight=1"], "reconstruction_weight needs reconstructs"),
    ]
    for profile, settings, named in refused:
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

    model = LeaprrModel.untrained(leaprr_config("code"), seed=0)
    assert sum(each.numel() for each in model.text_queries.parameters()) == by_hand
    assert sum(each.numel() for each in model.image_queries.parameters()) == by_hand
    assert round(by_hand / 1e6, 1) == 14.4
