"""`--set field=value` of LeaPRR: each kind of field, and each fault by name."""

import doctest

import pytest

from tandem.neighbours.leaprr import config_settings
from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.config_settings import with_settings


def test_each_kind_of_field() -> None:
    settings = [
        "margin=0.3",
        "batch_size=1_024",
        "scores_query=false",
        "fixed_threshold_nodes=9,5",
        "pillar_rank=bottom",
        "width = none",
        "head_count=1",
    ]

    changed = with_settings(leaprr_config("code"), settings)

    assert (changed.margin, changed.batch_size, changed.scores_query) == (0.3, 1024, False)
    assert changed.fixed_threshold_nodes == (9, 5)
    assert (changed.pillar_rank, changed.width) == ("bottom", None)
    assert changed.layer_count == leaprr_config("code").layer_count
    assert with_settings(changed, ["fixed_threshold_nodes=none"]).fixed_threshold_nodes is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("margin", "write it as field=value"),
        ("margn=1", "no field 'margn'; did you mean margin"),
        ("margin=wide", "margin is 'wide', not a number"),
        ("margin=nan", "margin is nan; it must be 0 or more"),
        ("batch_size=2.5", "batch_size is '2.5', not an integer"),
        ("batch_size=0", "batch_size is 0; it must be 1 or more"),
        ("scores_query=maybe", "scores_query is 'maybe', not true or false"),
        ("pillar_rank=middle", "pillar_rank is 'middle', not one of top, bottom, random"),
        ("fixed_threshold_nodes=3", "not two integers with a comma"),
        ("learning_rate=0", "learning_rate is 0.0; it must be above 0"),
        ("momentum=1", "momentum is 1.0; it must be below 1"),
        ("width=7", "24 heads do not divide a width of 7"),
    ],
)
def test_each_fault_is_named(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_settings(leaprr_config("code"), [setting])


def test_a_field_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="margin is given twice"):
        with_settings(leaprr_config("code"), ["margin=1", "margin=2"])


def test_a_loss_without_its_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="reconstruction_weight needs reconstructs"):
        with_settings(leaprr_config("paper"), ["reconstruction_weight=1"])


def test_doctests() -> None:
    assert doctest.testmod(config_settings).failed == 0
