"""Systems side by side: only on the same queries."""

from dataclasses import replace

import pytest

from tandem.lab.evaluation.reports.comparison import compare
from tandem.lab.evaluation.reports.report import BE, Ranking, Report

ABOUT = {"title": "a", "corpus": "scenes", "split": "test", "seed": 1}


def report(*ranks: int) -> Report:
    ranking = Ranking("text→image", BE, 0, ranks)
    return Report(ABOUT, {"text→image": ["en"] * len(ranks)}, (ranking,), {})


def test_a_system_is_compared_with_the_first() -> None:
    """It answers three queries that the first does not, and loses none: 2 x 1/8."""
    first, second = compare({"joint": [report(1, 2, 2, 2)], "sep": [report(1, 1, 1, 1)]})

    assert (first.system, first.difference, first.p_value) == ("joint", 0.0, 1.0)
    assert (second.system, second.difference, second.p_value) == ("sep", 75.0, 0.25)


def test_seeds_are_joined() -> None:
    """Means and deviations over them, one test over the three queries that differ: 2 x 1/8.

    As if seeds were other queries, it would be 2 x 1/16.
    """
    joint = [report(1, 2, 2, 2), report(1, 1, 2, 2)]
    sep = [report(1, 1, 2, 1), report(1, 1, 1, 1)]

    first, second = compare({"joint": joint, "sep": sep})

    assert first.recall_at_1.values == (25.0, 50.0)
    assert str(second.recall_at_1) == "87.5 ± 17.7"
    assert (second.difference, second.p_value) == (50.0, 0.25)


def test_the_captions_of_a_picture_are_one_in_pairs() -> None:
    """Two pictures of two captions, all answered by the one and none by the other: 2 x 1/4.

    What does not say which are whose is held against nothing that does.
    """
    of_captions = [
        replace(each, rankings=(replace(each.rankings[0], pictures=(0, 0, 1, 1)),))
        for each in (report(2, 2, 2, 2), report(1, 1, 1, 1))
    ]

    _, second = compare({"joint": of_captions[:1], "sep": of_captions[1:]})
    _, alone = compare({"joint": [report(2, 2, 2, 2)], "sep": [report(1, 1, 1, 1)]})

    assert (second.p_value, alone.p_value) == (0.5, 0.125)
    with pytest.raises(ValueError, match="sep and the first group captions"):
        list(compare({"joint": of_captions[:1], "sep": [report(1, 1, 1, 1)]}))


def test_fusions_over_other_pools_are_not_one_order() -> None:
    """A sum over twenty is held against no sum over fifty, though both are called add 0.1."""
    twenty, fifty = (
        replace(report(1, 1), rankings=(Ranking("text→image", "add 0.1", k, (1, 1)),))
        for k in (20, 50)
    )

    assert not list(compare({"a": [twenty], "b": [fifty]}))
    assert len(list(compare({"a": [twenty], "b": [twenty]}))) == 2


def test_reports_of_different_questions_are_refused() -> None:
    for field in (
        *("corpus", "split", "seed", "galleries", "language", "distractors", "skipped"),
        "refused by the server",
    ):
        other = replace(report(1, 1), about=ABOUT | {field: "other"})
        with pytest.raises(ValueError, match=f"b was measured with {field} other"):
            list(compare({"a": [report(1, 2)], "b": [other]}))
    later = replace(report(1, 1), about=ABOUT | {"date": "other"})
    assert list(compare({"a": [report(1, 2)], "b": [later]}))


@pytest.mark.parametrize("field", ["corpus", "skipped"])
def test_one_corpus_under_two_paths_is_compared(field: str) -> None:
    """Its digest says that the records are the same; an earlier release's has none."""
    here, there = (
        replace(report(*ranks), about=ABOUT | {"corpus digest": "1f", field: path})
        for ranks, path in [((1, 2), "photos"), ((1, 1), "/srv/photos")]
    )

    assert len(list(compare({"a": [here], "b": [there]}))) == 2
    for digest in (None, "2e", ["1f"]):
        other = replace(there, about=there.about | {"corpus digest": digest})
        with pytest.raises(ValueError, match=f"b was measured with {field} /srv/photos"):
            list(compare({"a": [here], "b": [other]}))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ([report(1, 1, 1)], "another number of text→image queries"),
        ([report(1, 1), report(1, 1)], "a has 1 seeds and b has 2"),
    ],
)
def test_other_queries_are_refused(other: list[Report], says: str) -> None:
    """A difference between them would say nothing of the systems."""
    with pytest.raises(ValueError, match=says):
        list(compare({"a": [report(1, 2)], "b": other}))
