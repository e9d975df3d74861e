"""The notebooks of docs/ run, cell after cell, and are stored without output."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Returns the cells that run, in order."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(cell: dict[str, Any], names: dict[str, Any]) -> Any:
    """Runs a cell as a notebook does; returns the value of its last expression."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<cell>", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, tmp_path: Path, tiny_repository: Path) -> None:
    """With the small model in place of the one in its cell of parameters."""
    names: dict[str, Any] = {}
    shown = []
    for cell in code_cells(path):
        assert not cell["outputs"]
        shown.append(run(cell, names))
        if "parameters" in cell["metadata"].get("tags", ()):
            names |= {"folder": tmp_path / "engine", "model": tiny_repository}

    assert names["engine"].folder == str(tmp_path / "engine")
    assert shown[1].fingerprint == names["result"].model_fingerprint
    assert shown[2] == []  # no item was refused
    assert len(names["result"].items) == 5
    assert {item.item_id for item in names["siblings"].items} == {
        each.record_id for each in names["records"] if each.family == names["records"][0].family
    }


def test_there_are_notebooks() -> None:
    """Where none is found, none is run."""
    assert [path.name for path in NOTEBOOKS] == ["engine.ipynb"]
