"""The site's own search finds pages that say how to do something first; `make docs` runs this."""

import json
import os
import shutil
import string
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("TANDEM_SITE", ""))
PROGRAM = ROOT / "tests/support/docs/site_search.cjs"
# What people type, and pages of which one must come first.
FIRST = {
    "how do I add my own photos": {"docs/photographs.html", "docs/your-pictures.html"},
    "delete index": {"docs/vector-index.html"},
    "list indexes": {"docs/vector-index.html"},
    "filters": {"docs/filters.html"},
    "attributes": {"docs/filters.html"},
    "uncalibrated": {"docs/calibration.html"},
    "backup": {"docs/backup.html"},
    "install": {"docs/install.html"},
    "token": {"docs/security.html", "docs/security.html#tokens"},
    "metrics": {"docs/metrics.html"},
}

pytestmark = pytest.mark.skipif(
    "TANDEM_SITE" not in os.environ or not shutil.which("node"),
    reason="NOT CHECKED: the site's search, which make docs builds and Node runs",
)


def test_pages_that_say_how_come_first() -> None:
    """And no decision and no log of a benchmark is found at all."""
    [worker] = (SITE / "assets/javascripts/workers").glob("search.*.min.js")
    index = SITE / "search/search_index.json"
    said = subprocess.run(
        ["node", PROGRAM, worker, index, *FIRST, *string.ascii_lowercase],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {each["q"]: each["found"] for each in map(json.loads, said.splitlines())}

    first = {query: pages[0][0] if pages else None for query, pages in found.items()}
    assert set(first) == {*FIRST, *string.ascii_lowercase}
    assert not {query: first[query] for query in FIRST if first[query] not in FIRST[query]}
    # What someone types is the beginning of a word.
    assert not [query for query, page in first.items() if page is None]
    locations = [each["location"] for each in json.loads(index.read_text())["docs"]]
    assert any(each.startswith("docs/filters") for each in locations)
    assert not [each for each in locations if each.startswith(("docs/decisions/0", "benchmarks/r"))]
