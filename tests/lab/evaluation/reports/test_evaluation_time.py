"""What a whole evaluation takes, by hand."""

from dataclasses import replace

import pytest

from tandem.lab.evaluation.reports.evaluation_time import (
    EVERY_PAIR,
    EvaluationTime,
    duration,
    evaluation_times,
    reads_every_pair,
)
from tandem.lab.evaluation.reports.published import published_times
from tandem.lab.evaluation.reports.report import BE, Ranking, Report, joined
from tandem.lab.evaluation.reports.report_markdown import report_markdown

TEXT, IMAGE = "text→image", "image→text"
SMALL, LARGE = f"{BE} + CE 2", f"{BE} + CE 4"


def report() -> Report:
    """Two queries each way among five items, of which four were read; a text's pair costs 0.5 s.

    Of the ten pairs of the second direction the first has read four: two captions' two pictures.
    """
    rankings = tuple(
        Ranking(direction, order_by, k, (1, 2))
        for direction in (TEXT, IMAGE)
        for order_by, k in ((BE, 0), (SMALL, 2), (LARGE, 4), ("add 0.1", 4))
    )
    measured = {"encode_images": 2.0, "encode_texts": 1.0, "match_tokens": 0.5, "pair_count": 8}
    seconds = {
        TEXT: measured | {"retrieve": 0.25, "match": 4.0, "all_pair_count": 10},
        IMAGE: measured | {"retrieve": 0.75, "match": 8.0, "all_pair_count": 6},
    }
    languages = {TEXT: ["en", "de"], IMAGE: ["en", "de"]}
    return Report({"title": "two"}, languages, rankings, seconds)


def test_each_order_by_hand() -> None:
    """One encoding, both retrievals, and each direction's pairs at its own cost: 0.5 and 1 s.

    The cross-encoder's own image tokens, half a second, are made where it reads anything.
    """
    assert list(evaluation_times(report())) == [
        EvaluationTime(BE, 0, 4.0, is_extrapolated=False),
        EvaluationTime(SMALL, 8, 10.5, is_extrapolated=False),
        EvaluationTime(LARGE, 16, 16.5, is_extrapolated=False),
        EvaluationTime(EVERY_PAIR, 16, 15.5, is_extrapolated=True),
    ]


def test_folds_take_the_sum_of_theirs() -> None:
    """Twice the time and the pairs, at the same cost of a pair."""
    whole = joined([report(), report()])

    assert [(each.pair_count, each.seconds) for each in evaluation_times(whole)] == [
        (2 * each.pair_count, 2 * each.seconds) for each in evaluation_times(report())
    ]


def test_a_depth_beyond_the_gallery_costs_the_gallery() -> None:
    """A pool of fifty out of five items has five pairs a query, all of which were read.

    Both directions read the four pairs of what asks; all pairs has them once.
    """
    everything = f"{BE} + CE 50"
    once = report()
    rankings = tuple(
        Ranking(direction, order_by, k, (1, 2))
        for direction in (TEXT, IMAGE)
        for order_by, k in ((BE, 0), (everything, 50))
    )
    seconds = {name: {**parts, "pair_count": 10} for name, parts in once.seconds.items()}

    _, pools, every_pair = evaluation_times(replace(once, rankings=rankings, seconds=seconds))

    assert (pools.pair_count, every_pair.pair_count) == (20, 16)
    assert not pools.is_extrapolated
    assert not every_pair.is_extrapolated


def test_a_servers_times_are_not_split() -> None:
    served = replace(report(), seconds={TEXT: {"search_20": 1.5}, IMAGE: {"search_20": 2.0}})

    assert not list(evaluation_times(served))
    assert "whole evaluation" not in report_markdown(served)


@pytest.mark.parametrize(("k", "is_every"), [(3, False), (5, True)])
def test_a_pool_of_the_whole_gallery_is_the_papers_ce(k: int, *, is_every: bool) -> None:
    """Five items both ways; the paper's figures of its CE alone use that pool."""
    order = f"{BE} + CE {k}"
    whole = tuple(Ranking(direction, order, k, (1, 2)) for direction in (TEXT, IMAGE))
    asked = replace(report(), rankings=(*report().rankings, *whole))

    assert reads_every_pair(asked, order) is is_every
    row = "| CE, all pairs | the paper's Joint | MSCOCO 5k | 54.6 / 81.1 / 88.8 |"
    assert (row in report_markdown(asked)) is is_every
    assert not reads_every_pair(joined([asked, asked]), order)


def test_printed_times_are_the_papers() -> None:
    """Pairs: 20 candidates for each of six queries a picture, its five captions and itself."""
    [small, *_, large] = published_times(f"{BE} + CE 20")

    assert small == ("MSCOCO 1k", 120_000, "5 min")
    assert large == ("MSCOCO 100k", 12_000_000, "8.5 h")
    assert not list(published_times("add 0.1"))


def test_durations_have_the_unit_of_their_size() -> None:
    seconds = [0.041, 300, 50 * 3_600, 2.3 * 365 * 86_400]

    assert [*map(duration, seconds)] == ["0.041 s", "5.0 min", "50.0 h", "2.3 years"]
