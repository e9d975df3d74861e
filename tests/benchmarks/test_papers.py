"""The papers' page says what was measured, and its verdicts are computed."""

import copy
import re
from pathlib import Path

import pytest

from benchmarks.papers import (
    AGREES,
    DIFFERS,
    NO_P,
    NOT_JUDGED,
    NOT_SHOWN,
    PAPERS_PAGE,
    RECORD,
    Measurement,
    kept_record,
    rendered,
    rows_of,
    verdict,
    with_part,
)

ROOT = Path(__file__).parents[2]
SEEDS = {"base": [[50.0, 52.0, 51.0]], "better": [[55.0, 57.5, 56.5]]}
WIDE = {"base": [[50.0, 52.0, 51.0]], "better": [[48.0, 70.0, 52.0]]}
MEANS = {"base": [51.0], "better": [56.3]}


def test_the_pages_are_as_rendered() -> None:
    """`python -m benchmarks.papers` writes them."""
    for (page, marker), part in rendered(kept_record()).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert with_part(text, marker, part) == text, f"{page}, {marker}"


def test_another_figure_is_another_page_and_another_verdict() -> None:
    """The positive control of the test above."""
    record = kept_record()
    changed = copy.deepcopy(record)
    [row] = [row for row in changed["papers"]["leaprr"]["rows"] if row.get("expects") == "above"][
        :1
    ]
    row["measured"][2]["seeds"] = 1

    before, after = rendered(record), rendered(changed)

    assert [key for key in before if before[key] != after[key]] == [(PAPERS_PAGE, "leaprr")]
    with pytest.raises(ValueError, match="no part"):
        with_part("a page without markers", "leaprr", "")


@pytest.mark.parametrize(
    ("expects", "fields", "expected"),
    [
        ("above", {"seeds": 1, "figures": MEANS, "p": [1e-9]}, "one seed"),
        ("above", {"seeds": 2, "figures": MEANS, "p": [1e-9]}, "two seeds"),
        ("above", {"seeds": 1, "figures": MEANS, "unit": "run"}, "one run"),
        ("above", {"seeds": 3, "figures": MEANS}, NO_P),
        ("above", {"seeds": 3, "figures": MEANS, "p": [0.049]}, AGREES),
        ("above", {"seeds": 3, "figures": MEANS, "p": [0.051]}, NOT_SHOWN),
        ("below", {"seeds": 3, "figures": MEANS, "p": [0.01]}, DIFFERS),
        (None, {"seeds": 3, "figures": MEANS, "p": [0.01]}, NOT_JUDGED),
        # Differences of 5, 5.5 and 5.5 seed by seed, and of -2, 18 and 1.
        ("above", {"seeds": 3, "figures": SEEDS}, AGREES),
        ("below", {"seeds": 3, "figures": SEEDS}, DIFFERS),
        ("above", {"seeds": 3, "figures": WIDE}, NOT_SHOWN),
        # 5.33 ± 0.72: Student's t of two degrees of freedom is 4.303.
        ({"within": 6.1}, {"seeds": 3, "figures": SEEDS}, AGREES),
        ({"within": 6.0}, {"seeds": 3, "figures": SEEDS}, NOT_SHOWN),
        ({"within": 4.6}, {"seeds": 3, "figures": SEEDS}, DIFFERS),
        # 5.3 at p 0.0455, two standard errors: an interval of 0.1 to 10.5.
        ({"within": 10.6}, {"seeds": 3, "figures": MEANS, "p": [0.0455]}, AGREES),
        ({"within": 10.4}, {"seeds": 3, "figures": MEANS, "p": [0.0455]}, NOT_SHOWN),
        # Both tests were kept: the seeds of WIDE leave open what the queries show, and the reverse.
        ("above", {"seeds": 3, "figures": SEEDS, "p": [0.01]}, AGREES),
        ("above", {"seeds": 3, "figures": WIDE, "p": [1e-9]}, NOT_SHOWN),
        ("above", {"seeds": 3, "figures": SEEDS, "p": [0.051]}, NOT_SHOWN),
        # 5.3 ± 4.303 times the deviation over the root of 3: 0.3 to 10.3, and -0.7 to 11.3.
        ("above", {"seeds": 3, "figures": MEANS, "deviations": [2.0], "p": [0.01]}, AGREES),
        ("above", {"seeds": 3, "figures": MEANS, "deviations": [2.4], "p": [0.01]}, NOT_SHOWN),
        ("below", {"seeds": 3, "figures": MEANS, "deviations": [2.0]}, DIFFERS),
        # A p of 1 has no interval.
        ("above", {"seeds": 3, "figures": MEANS, "p": [1.0]}, NOT_SHOWN),
        ({"within": 6.1}, {"seeds": 3, "figures": SEEDS, "p": [1.0]}, AGREES),
        (
            "above",
            {"seeds": 3, "figures": {"a": [1.0, 2.0], "b": [2.0, 1.0]}, "p": [0.01, 0.01]},
            f"{AGREES} / {DIFFERS}",
        ),
    ],
)
def test_a_verdict_needs_three_seeds_and_a_test(
    expects: str | dict[str, float] | None, fields: dict[str, object], expected: str
) -> None:
    assert verdict(expects, Measurement(of="scenes", **fields)) == expected  # type: ignore[arg-type]


def test_a_figure_has_as_many_values_as_seeds() -> None:
    with pytest.raises(ValueError, match="better has 3 values"):
        Measurement(of="scenes", seeds=4, figures={"better": [[1.0, 2.0, 3.0]]})


def test_each_figure_is_on_its_page() -> None:
    """Transcribed, not remembered. Differences and shares are computed from figures of the page."""
    record = kept_record()
    absent, seen = [], 0
    for row in (row for paper in record["papers"].values() for row in rows_of(paper)):
        for each in row.measured:
            run = record["runs"].get(each.run, {})
            if "page" not in run or re.search("gain|kept", f"{each.of} {each.figures}"):
                continue
            page = (RECORD.parent / run["page"]).read_text(encoding="utf-8")
            there = set(re.findall(r"\d+(?:\.\d+)?", page))
            for figure in (
                figure for figures in (each.figures or {}).values() for figure in figures
            ):
                for value in figure if isinstance(figure, list) else [figure]:
                    seen += 1
                    if not {f"{value:.1f}", f"{value:g}"} & there:
                        absent.append((row.table, each.of, value))

    assert absent == []
    assert seen > 200


def test_each_row_can_be_repeated_and_no_reading_has_a_verdict() -> None:
    record = kept_record()
    programs = {
        program
        for run in record["runs"].values()
        for program in re.findall(r"python -m ([\w.]+)", run["command"])
    }
    rows = [row for paper in record["papers"].values() for row in rows_of(paper)]
    served = [each.as_served() for row in rows for each in row.measured if each.served is not None]

    assert {"benchmarks.bench.leaprr", "benchmarks.bench.train_grid"} <= programs
    gone = {each for each in programs if not (ROOT / f"{each.replace('.', '/')}.py").is_file()}
    assert gone == set()
    used = {each.run for row in rows for each in row.measured} | {
        each.run for each in served if each
    }
    unused = {name for name, run in record["runs"].items() if name not in used}
    assert all("letter" in record["runs"][name] for name in unused)
    words = re.compile(r"\b(dis)?agrees?\b|\bdiffers\b|\bin part\b|\byes\b", re.IGNORECASE)
    assert [row.reading for row in rows if words.search(row.reading)] == []
    assert words.search("It agrees with the paper.")
