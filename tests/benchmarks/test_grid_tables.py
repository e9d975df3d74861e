"""The grid's tables: systems side by side, each seed with its interval, and by language."""

from benchmarks.support.tables.grid_tables import recall_table, seed_table
from tandem.lab.evaluation.reports.report import Ranking, Report

DIRECTIONS = ("text→image", "image→text")
LANGUAGES = ("cs", "cs", "en", "en")


def report(first_of: dict[str, int]) -> Report:
    """Returns one of four queries a direction, of which the first so many are right by an order."""
    rankings = tuple(
        Ranking(
            direction, order_by, 0 if order_by == "BE" else 20, (1,) * right + (2,) * (4 - right)
        )
        for direction in DIRECTIONS
        for order_by, right in first_of.items()
    )
    return Report({}, dict.fromkeys(DIRECTIONS, LANGUAGES), rankings, {})


def two_systems() -> dict[str, list[Report]]:
    """Returns two seeds of two systems."""
    return {
        "Joint": [report({"BE": 2, "BE + CE 20": 4}), report({"BE": 1, "BE + CE 20": 3})],
        "Sep": [report({"BE": 1, "BE + CE 20": 3}), report({"BE": 1, "BE + CE 20": 3})],
    }


def test_systems_are_compared_over_their_seeds() -> None:
    """Means of 50 and 25, with their deviation; p of one query in eight that only one has right."""
    lines = recall_table(two_systems()).splitlines()

    assert lines[0] == "| order by | text→image: Joint | Sep | p | image→text: Joint | Sep | p |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2] == "| BE | 37.5 ± 17.7 | 25.0 ± 0.0 | 1 | 37.5 ± 17.7 | 25.0 ± 0.0 | 1 |"
    assert lines[3].startswith("| BE + CE 20 | 87.5 ± 17.7 | 75.0 ± 0.0 | 1 |")


def test_each_seed_has_its_interval_and_sums() -> None:
    rows = seed_table(two_systems(), [1, 7]).splitlines()[2:]

    assert [row.split(" | ")[0] for row in rows] == ["| Joint 1", "| Joint 7", "| Sep 1", "| Sep 7"]
    assert rows[0] == (
        "| Joint 1 | 50.0 (15.0–85.0) | 100.0 (51.0–100.0) | 50.0 (15.0–85.0) "
        "| 100.0 (51.0–100.0) | 83.3 | 100.0 | 500.0 | 600.0 |"
    )
