"""Reports: what the ranks come to, and the same again from the file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tandem.evaluation.plots import plot_recall_against_time
from tandem.evaluation.published import published_rows
from tandem.evaluation.report import BE, Ranking, Report, Spread, joined
from tandem.evaluation.report_markdown import report_markdown

TEXT, IMAGE = "text→image", "image→text"
CE = "BE + CE 20"


def report(ce_ranks: tuple[int | None, ...] = (1, 1, 1, 4)) -> Report:
    """Returns four queries each way, in two languages."""
    rankings = (
        Ranking(TEXT, BE, 0, (1, 2, 6, 4), 0.010),
        Ranking(TEXT, CE, 20, ce_ranks, 0.060),
        Ranking(IMAGE, BE, 0, (1, 1, 11, None), 0.012),
        Ranking(IMAGE, CE, 20, (1, 2, 1, None), 0.070),
    )
    languages = {TEXT: ["en", "en", "de", "de"], IMAGE: ["en", "en", "de", "de"]}
    seconds = {TEXT: {"match": 1.5, "pair_count": 80}, IMAGE: {"match": 2.0, "pair_count": 80}}
    about = {"title": "scenes test, gallery of 4", "corpus": "scenes"}
    return Report(about, languages, rankings, seconds)


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


def test_a_language_has_its_own_queries() -> None:
    """Of the two German ones the bi-encoder puts neither first."""
    measured = report()

    german = measured.of_language(measured.ranking(TEXT, BE), "de")

    assert german.ranks == (6, 4)
    assert german.recalls[0].percent == 0.0


def test_the_file_gives_the_report_again(tmp_path: Path) -> None:
    """Absent answers and arrows too; and what the ranks come to stands beside them."""
    path = tmp_path / "new" / "report.json"

    report().write(path)

    assert Report.read(path) == report()
    measures = json.loads(path.read_text())["measures"]
    assert measures[1]["recall_percent"] == {"R@1": 75.0, "R@5": 100.0, "R@10": 100.0}
    assert [each["median_rank"] for each in measures] == ["3.0", "1.0", "6.0", "1.5"]


@pytest.mark.parametrize("content", ["{}", "[", '{"format_version": 99}'])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, content: str) -> None:
    """With what is wrong."""
    path = tmp_path / "report.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"report\.json is no report of this version"):
        Report.read(path)


def test_folds_are_one_report_of_all_their_queries() -> None:
    """Of folds of one size, the mean of recalls is the recall of all queries."""
    slower = report((1, 7, 1, 1))
    slow_rankings = tuple(replace(each, query_seconds=0.1) for each in slower.rankings)
    folds = [report(), replace(slower, rankings=slow_rankings)]

    whole = joined(folds)

    of_folds = [fold.ranking(TEXT, CE).recalls[1].percent for fold in folds]
    assert whole.ranking(TEXT, CE).recalls[1].percent == sum(of_folds) / 2 == 87.5
    assert whole.ranking(TEXT, CE).query_seconds == pytest.approx(0.08)
    assert whole.seconds[TEXT] == {"match": 3.0, "pair_count": 160}
    assert len(whole.languages[IMAGE]) == 8


def test_what_one_fold_says_alone_is_said_of_all() -> None:
    """The first had nothing to count."""
    counting = replace(report(), about={"title": "t", "refused by the server": "1 records"})

    whole = joined(
        [replace(report(), tied_counts={TEXT: 1}), replace(counting, tied_counts={TEXT: 2})]
    )

    assert whole.about["refused by the server"] == "1 records"
    assert whole.tied_counts == {TEXT: 3}


def test_the_papers_sums_stand_beside_sums_over_as_many() -> None:
    """Theirs are over pools of 20."""

    def page(k: int) -> str:
        sums = tuple(Ranking(name, "add 0.1", k, (1, 2, 6, 4)) for name in (TEXT, IMAGE))
        return report_markdown(replace(report(), rankings=(*report().rankings, *sums)))

    assert "| add 0.1 | Flickr30k 1k |" in page(20)
    assert "| add 0.1 | Flickr30k 1k |" not in page(50)


def test_a_page_tells_how_deep_was_looked() -> None:
    """Where an answer lay behind that, MRR and median rank are no full gallery's."""
    note = "no full gallery's"
    whole = tuple(replace(each, ranks=(1, 2, 3, 4)) for each in report().rankings)

    assert note in report_markdown(report())
    assert note not in report_markdown(replace(report(), rankings=whole))


def test_the_page_says_what_the_numbers_are_of() -> None:
    """Recall with intervals, languages, times, and the paper's rows called another data set's."""
    page = report_markdown(report(), "plot.png")

    assert page.startswith("# scenes test, gallery of 4\n")
    row = next(line for line in page.splitlines() if line.startswith(f"| {TEXT} | {CE} "))
    assert row == (
        "| text→image | BE + CE 20 | 75.0  30.1–95.4 | 100.0  51.0–100.0 | 100.0  51.0–100.0 "
        "| 0.812 | 1 | 0.5 |"
    )
    assert "| text→image | BE | 50.0  9.5–90.5 | 0.0  0.0–65.8 |" in page  # by language
    assert "![R@1 against what a query takes](plot.png)" in page
    assert "| BE + CE 20 | Flickr30k 1k | text→image | 76.4 | 93.6 | 96.2 | Table 8 |" in page
    assert "Other data sets, other models" in page


def test_what_was_printed_is_found_by_the_same_name() -> None:
    """The bi-encoder of the joint model, on both data sets, both ways; nothing for what is new."""
    rows = list(published_rows(BE))

    assert {(each.data_set, each.direction) for each in rows} == {
        (data_set, direction)
        for data_set in ("Flickr30k 1k", "MSCOCO 5k")
        for direction in (TEXT, IMAGE)
    }
    assert (71.6, 91.5, 95.0) in [each.recalls for each in rows]
    assert [each.note for each in published_rows("norm_add 0.5") if each.direction == TEXT] == [
        "normalised for a fifth of the queries only"
    ]
    assert not list(published_rows("BE + CE 7"))


def test_seeds_have_a_mean_and_a_deviation() -> None:
    """Of 1, 2 and 3: 2 and 1; of a single one there is no deviation."""
    assert str(Spread((1.0, 2.0, 3.0))) == "2.0 ± 1.0"
    assert str(Spread((4.0,))) == "4.0"


def test_a_plot_has_a_line_a_direction(tmp_path: Path) -> None:
    """With both directions it has more ink than with one."""
    both, one = tmp_path / "both.png", tmp_path / "one.png"
    measured = report()

    plot_recall_against_time(measured, both)
    text_only = replace(measured, languages={TEXT: measured.languages[TEXT]})
    plot_recall_against_time(text_only, one)

    assert ink(both) > ink(one) > 0


def ink(path: Path) -> int:
    """Returns how many of a picture's points are not white."""
    with Image.open(path) as image:
        return sum(image.convert("L").histogram()[:200])
