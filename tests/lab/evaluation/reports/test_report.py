"""Reports: the figures that ranks give, and the same again from the file."""

import json
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.lab.evaluation.reports.evaluation_time import EVERY_PAIR
from tandem.lab.evaluation.reports.plots import plot_recall_against_time
from tandem.lab.evaluation.reports.published import published_rows
from tandem.lab.evaluation.reports.report import BE, FORMAT_VERSION, Ranking, Report, joined
from tandem.lab.evaluation.reports.report_markdown import report_markdown
from tandem.lab.evaluation.reports.spread import Spread
from tests.support.evaluation.made_report import CE, IMAGE, TEXT, report


def test_sums_over_both_directions_are_those_of_each_order() -> None:
    """BE: 25, 75, 100 and 50, 50, 50; BE + CE: 75, 100, 100 and 50, 75, 75 percent."""
    assert list(report().summaries()) == [
        (BE, pytest.approx(350 / 6), pytest.approx(350.0)),
        (CE, pytest.approx(475 / 6), pytest.approx(475.0)),
    ]


def test_p_is_of_the_queries_that_one_of_both_answers() -> None:
    """Two that only the cross-encoder answers and none the other way: 2 x 1/4."""
    measured = report()

    assert measured.p_value(measured.ranking(TEXT, CE)) == 0.5
    assert measured.p_value(measured.ranking(TEXT, BE)) == 1.0


def of_two_pictures(ce_ranks: tuple[int | None, ...] = (1, 1, 1, 4)) -> Report:
    """Returns the same where the texts are two captions each of two pictures."""
    rankings = [
        replace(each, pictures=(0, 0, 1, 1)) if each.direction == TEXT else each
        for each in report(ce_ranks).rankings
    ]
    return replace(report(), rankings=tuple(rankings))


def test_the_captions_of_a_picture_are_one_for_p() -> None:
    """The cross-encoder answers one more of either: 2 x 1/4 as of two, where all four are right."""
    together, alone = of_two_pictures((1, 1, 1, 1)), report((1, 1, 1, 1))

    # Of the four texts three differ: 2 x 1/8. Of the two pictures both: 2 x 1/4.
    assert together.p_value(together.ranking(TEXT, CE)) == 0.5
    assert alone.p_value(alone.ranking(TEXT, CE)) == 0.25


def test_captions_of_a_picture_widen_the_interval(tmp_path: Path) -> None:
    alike = (1, 1, 4, 4)
    measured = of_two_pictures(alike)
    path = tmp_path / "report.json"

    measured.write(path)

    assert Report.read(path) == measured
    content = json.loads(path.read_text())
    assert content["pictures"] == {TEXT: [0, 0, 1, 1]}
    assert not any("pictures" in each for each in content["rankings"])
    german = measured.of_language(measured.ranking(TEXT, BE), "de")
    assert (german.ranks, german.pictures) == ((6, 4), (1, 1))
    alone, together = (each.ranking(TEXT, CE).recalls[0] for each in (report(alike), measured))
    assert together.percent == alone.percent
    assert together.interval_percent[0] < alone.interval_percent[0]
    note = "captions of one picture are correlated"
    assert note in report_markdown(measured)
    assert note not in report_markdown(report())


def of_two_answers() -> Report:
    """Returns the report where each picture has two captions, one of which may be out of sight."""
    further = ((3,), (2,), (12,), (None,))
    rankings = [
        replace(each, other_ranks=further if each.direction == IMAGE else ((),) * 4)
        for each in report().rankings
    ]
    return replace(report(), rankings=tuple(rankings))


def test_every_answer_counts_for_ndcg_and_map(tmp_path: Path) -> None:
    """Of the captions at 1 and 3, 1 and 2, 11 and 12, and nowhere, by hand; the file keeps them."""
    measured, path = of_two_answers(), tmp_path / "report.json"

    measured.write(path)

    assert Report.read(path) == measured
    ranking = measured.ranking(IMAGE, BE)
    average_precisions = (1 + 2 / 3) / 2, 1.0, (1 / 11 + 2 / 12) / 2, 0.0
    assert ranking.mean_average_precision == pytest.approx(sum(average_precisions) / 4)
    ideal = 1 + 1 / math.log2(3)
    assert ranking.ndcg == pytest.approx((1.5 / ideal + 1) / 4)
    measures = json.loads(path.read_text())["measures"]
    assert measures[2]["ndcg_at_10"] == ranking.ndcg
    assert measures[2]["mean_average_precision"] == ranking.mean_average_precision
    german = measured.of_language(ranking, "de")
    assert german.other_ranks == ((12,), (None,))
    assert f"| {ranking.ndcg:.3f} | {ranking.mean_average_precision:.3f} |" in report_markdown(
        measured
    )


def test_a_report_without_further_answers_has_no_ndcg(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    of_two_answers().write(path)
    content = json.loads(path.read_text())
    for each in content["rankings"]:
        del each["other_ranks"]
    path.write_text(json.dumps(content))

    ranking = Report.read(path).ranking(IMAGE, BE)

    assert (ranking.ndcg, ranking.mean_average_precision) == (None, None)
    whole = joined([report(), of_two_answers()])
    assert whole.ranking(IMAGE, BE).other_ranks is None
    both = joined([of_two_answers(), of_two_answers()])
    assert both.ranking(IMAGE, BE).other_ranks == 2 * ((3,), (2,), (12,), (None,))


def test_a_report_is_read_back_from_its_file(tmp_path: Path) -> None:
    """Absent answers and arrows too, with the figures that the ranks give."""
    path = tmp_path / "new" / "report.json"

    report().write(path)

    assert Report.read(path) == report()
    measures = json.loads(path.read_text())["measures"]
    assert measures[1]["recall_percent"] == {"R@1": 75.0, "R@5": 100.0, "R@10": 100.0}
    assert [each["median_rank"] for each in measures] == ["3.0", "1.0", "6.0", "1.5"]


FIELDS = (
    f'{{"format_version": {FORMAT_VERSION}, "about": {{}}, "seconds": {{}}, '
    '"rankings": %s, "languages": %s}'
)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[",
        "[1]",
        '{"format_version": 99}',
        FIELDS % ("[]", "{}"),
        FIELDS % ("[{}]", "{}"),
        FIELDS % ("[]", "3"),
    ],
)
def test_a_file_that_is_not_a_report_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(ValueError, match=r"report\.json is not a report of this version"):
        Report.read(path)


def test_a_title_of_any_text_is_written_and_drawn(tmp_path: Path) -> None:
    hostile = "$\\frac{$ [/x] \x1b[31m half \udcff \ud83d 👩\u200d🚀"
    titled = replace(report(), about={**report().about, "title": hostile})

    titled.write(tmp_path / "report.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a font lacks some of these
        plot_recall_against_time(titled, tmp_path / "plot.png")

    assert Report.read(tmp_path / "report.json").about["title"] == hostile
    assert (tmp_path / "plot.png").stat().st_size


def test_folds_give_one_report_of_all_their_queries() -> None:
    slower = report((1, 7, 1, 1))
    slow_rankings = tuple(replace(each, query_seconds=0.1) for each in slower.rankings)
    folds = [report(), replace(slower, rankings=slow_rankings)]

    whole = joined(folds)

    of_folds = [fold.ranking(TEXT, CE).recalls[1].percent for fold in folds]
    assert whole.ranking(TEXT, CE).recalls[1].percent == sum(of_folds) / 2 == 87.5
    assert whole.ranking(TEXT, CE).query_seconds == pytest.approx(0.08)
    assert whole.seconds[TEXT] == {"match": 3.0, "pair_count": 160}
    assert len(whole.languages[IMAGE]) == 8


def test_no_two_folds_share_a_picture() -> None:
    """Though each numbers its own from 0; and each fold has its own again."""
    folds = [of_two_pictures(), of_two_pictures()]

    whole = joined(folds)

    assert whole.ranking(TEXT, CE).pictures == (0, 0, 1, 1, 2, 2, 3, 3)
    assert whole.ranking(IMAGE, CE).pictures == ()
    second = whole.of_folds(whole.ranking(TEXT, CE))[1]
    assert (second.ranks, second.pictures) == ((1, 1, 1, 4), (2, 2, 3, 3))


def test_values_of_one_fold_are_reported_for_all() -> None:
    """The first had nothing to count."""
    counting = replace(report(), about={"title": "t", "refused by the server": "1 records"})

    whole = joined(
        [replace(report(), tied_counts={TEXT: 1}), replace(counting, tied_counts={TEXT: 2})]
    )

    assert whole.about["refused by the server"] == "1 records"
    assert whole.tied_counts == {TEXT: 3}


def test_the_papers_sums_are_compared_with_sums_over_as_many() -> None:
    """Theirs are over pools of 20."""

    def page(k: int) -> str:
        sums = tuple(Ranking(name, "add 0.1", k, (1, 2, 6, 4)) for name in (TEXT, IMAGE))
        return report_markdown(replace(report(), rankings=(*report().rankings, *sums)))

    assert "| add 0.1 | the paper's Sep | Flickr30k 1k |" in page(20)
    assert "| add 0.1 | the paper's" not in page(50)


def test_the_page_names_the_source_of_its_numbers() -> None:
    page = report_markdown(report(), "plot.png")

    assert page.startswith("# scenes test, gallery of 4\n")
    row = next(line for line in page.splitlines() if line.startswith(f"| {TEXT} | {CE} "))
    assert row == (
        "| text→image | BE + CE 20 | 75.0  30.1–95.4 | 100.0  51.0–100.0 | 100.0  51.0–100.0 "
        "|  |  | 0.812 | 1 | 0.5 |"
    )
    assert "| text→image | BE | 50.0  9.5–90.5 | 0.0  0.0–65.8 |" in page  # by language
    assert "![R@1 against what a query takes](plot.png)" in page
    ours = "| BE + CE 20 | **this** | scenes | 75.0 / 100.0 / 100.0 | 50.0 / 75.0 / 75.0 |  |"
    theirs = [
        "| the paper's Joint | Flickr30k 1k | 76.4 / 93.6 / 96.2 | 89.4 / 97.7 / 99.0 | Table 8 |",
        "| the paper's Sep | Flickr30k 1k | 76.0 / 93.0 / 95.0 | 88.7 / 98.3 / 99.2 | Table 8 |",
    ]
    assert [page.index(row) for row in (ours, *theirs)] == sorted(map(page.index, (ours, *theirs)))
    assert "Data sets and models differ" in " ".join(page.split())


def test_mean_recalls_by_language_are_compared_with_the_papers() -> None:
    """Of two queries a language and direction: mR by hand, and no mean of fewer languages.

    English by BE: 50, 100, 100 and 100, 100, 100; German: 0, 50, 100 and 0, 0, 0.
    """
    page = report_markdown(report())

    assert "| BE | **this** | 91.7 | 25.0 |  |  |  |" in page
    assert "| BE | the paper's Sep | 82.8 | 78.0 | 75.1 | 73.6 | 77.4 |" in page
    assert "| BE + CE 20 | the paper's Joint | 83.0 | 79.2 | 75.9 | 74.0 | 78.0 |" in page
    four = {name: ["en", "de", "fr", "cs"] for name in (TEXT, IMAGE)}
    assert re.search(
        r"\| BE \| \*\*this\*\* \| 100.0 \| 83.3 \| 16.7 \| 33.3 \| 58.3 \|",
        report_markdown(replace(report(), languages=four)),
    )
    one = {name: ["en"] * 4 for name in (TEXT, IMAGE)}
    assert "Multi30k" not in report_markdown(replace(report(), languages=one))


def test_a_printed_name_finds_its_row() -> None:
    """The bi-encoders of both systems, on both data sets; nothing for what is new."""
    rows = list(published_rows(BE, is_enlarged=False))

    assert {(each.data_set, each.system) for each in rows} == {
        (data_set, system)
        for data_set in ("Flickr30k 1k", "MSCOCO 5k")
        for system in ("Joint", "Sep")
    }
    assert {TEXT: (71.6, 91.5, 95.0), IMAGE: (86.3, 96.8, 98.6)} in [each.recalls for each in rows]
    assert {each.note for each in published_rows("norm_add 0.5", is_enlarged=False)} == {
        "text→image normalised for a fifth of the queries only"
    }
    assert not list(published_rows("BE + CE 7", is_enlarged=True))


def test_every_printed_row_is_whole() -> None:
    orders = [BE, *(f"BE + CE {k}" for k in (10, 20, 50)), EVERY_PAIR]
    orders += [f"{name} {weight}" for name in ("add", "norm_add") for weight in (0.1, 0.5, 0.9)]
    rows = [row for order in orders for row in published_rows(order, is_enlarged=True)]

    # Table 1 has 8 of BE and CE, Table 8 has 18, Table 9 has 12, Table 5 has 6.
    assert len(rows) == 44
    for row in rows:
        assert list(row.recalls) == [TEXT, IMAGE]
        for recalls in row.recalls.values():
            assert list(recalls) == sorted(recalls)
            assert 40 < recalls[0] < recalls[2] < 100


def test_an_interval_is_of_the_mean_over_seeds() -> None:
    """Of 1, 2 and 3: 2 and 4.303 times 1 over the root of 3 either way; of one there is none."""
    low, high = Spread((1.0, 2.0, 3.0)).interval or (0.0, 0.0)

    assert (low, high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert Spread((1.0, 2.0, 3.0)).interval_text == "-0.5 to 4.5"
    assert str(Spread((1.0, 2.0, 3.0))) == "2.0 ± 1.0"
    assert (Spread((4.0,)).interval, Spread((4.0,)).interval_text) == (None, "")
    assert str(Spread((4.0,))) == "4.0"
