"""What docs/engines.md says of faults is tried by the tests that it names."""

import re
from pathlib import Path

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
