"""docs/walks.md leads through files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP = re.compile(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)
STOPS = sorted(set(STOP.findall((ROOT / "docs/walks.md").read_text(encoding="utf-8"))))


def names_in(program: str) -> set[str]:
    """Returns the tables, and the functions and classes also inside of others, of a program."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(program)
    tables = {each.targets[0] for each in tree.body if isinstance(each, ast.Assign)}
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)} | {
        each.id for each in tables if isinstance(each, ast.Name)
    }


def test_every_stop_exists() -> None:
    """A renamed function has to be renamed on the page too."""
    named = {file: names_in((ROOT / file).read_text(encoding="utf-8")) for file, _ in STOPS}

    assert [(file, name) for file, name in STOPS if name not in named[file]] == []


def test_the_page_has_stops() -> None:
    """The control: a table in another form would leave nothing to check."""
    assert len(STOPS) > 50
    assert "gone" not in names_in("def here(): ...\n")
