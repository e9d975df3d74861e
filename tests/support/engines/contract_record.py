"""What the contract of shards showed of each kind of shard, and the part of a page made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tests.support.deploy.rendered import ROOT

RECORD = ROOT / "tests" / "contracts" / "shard_contract.json"
PAGE = ROOT / "docs" / "engines.md"
SUITE = ("test_shard_contract.py", "test_generation_contract.py")
"""The files of tests/contracts that say what a shard does."""
DIFFERS = "differs"
"""The name of the property by which a test says what a kind does instead."""
YES = "yes"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "lmdb": ("here", "behind a socket"),
    "pgvector": ("pgvector", "pgvector behind a socket"),
    "milvus": ("milvus",),
}
"""The kinds of shards of each column; they do the same."""
_PART = re.compile(r"(?<=<!-- contract -->\n).*(?=<!-- end of contract -->)", re.DOTALL)

Record = dict[str, dict[str, str]]
"""By the name of a test and the kind: "yes", or what the kind does instead."""


def kept_record() -> Record:
    """Returns the record of the last run over all kinds."""
    record: Record = json.loads(RECORD.read_text())
    return record


def keep(record: Record) -> None:
    """Writes the record, and the page's part."""
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    PAGE.write_text(_PART.sub(lambda _: part_of_page(record), PAGE.read_text()))


def page_part() -> str:
    """Returns what the page says now."""
    [part] = _PART.findall(PAGE.read_text())
    return str(part)


def part_of_page(record: Record) -> str:
    """Returns a table of what differs, and a list of what all kinds keep."""
    rows = {
        test: [" / ".join(dict.fromkeys(kinds[kind] for kind in each)) for each in COLUMNS.values()]
        for test, kinds in sorted(record.items())
    }
    lines = [f"| promise | {' | '.join(COLUMNS)} |", f"| --- {'| --- ' * len(COLUMNS)}|"]
    lines += [
        f"| {_sentence(test)} | {' | '.join(cells)} |"
        for test, cells in rows.items()
        if set(cells) != {YES}
    ]
    lines += ["", "All of them keep the other promises of the suite:", ""]
    lines += [f"- {_sentence(test)}" for test, cells in rows.items() if set(cells) == {YES}]
    return "\n".join(lines) + "\n"


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")
