"""What docs/engines.md says is what tests have shown."""

import re
from pathlib import Path

from tests.support.engines.contract_record import (
    COLUMNS,
    SUITE,
    kept_record,
    page_part,
    part_of_page,
)

ROOT = Path(__file__).parents[2]


def test_each_fault_names_tests_that_there_are() -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    table = page.partition("## What Postgres' faults become")[2]
    rows = re.findall(r"(`test_.*`) \|$", table, re.MULTILINE)
    named = set(re.findall(r"`(test_\w+)`", " ".join(rows)))
    files = [*(ROOT / "tests/contracts").glob("*.py"), *(ROOT / "tests/engines").glob("*.py")]
    there = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in files)))

    assert len(rows) > 5
    assert named - there == set()


def test_the_promises_are_those_of_the_last_run_of_the_contract() -> None:
    """`make test-engines` writes both; a new test of the contract needs it."""
    record = kept_record()
    source = "".join((ROOT / "tests" / "contracts" / name).read_text() for name in SUITE)

    assert page_part() == part_of_page(record)
    assert record.keys() == set(re.findall(r"^async def (test_\w+)", source, re.MULTILINE))
    kinds = {kind for each in COLUMNS.values() for kind in each}
    assert all(outcomes.keys() == kinds for outcomes in record.values())
    changed = record | {"test_words": dict.fromkeys(kinds, "no")}  # the positive control
    assert part_of_page(changed) != page_part()
