"""Figures of a tree of a few files, counted by hand."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import structure

_FILES = {
    "made_up_one/__init__.py": "from made_up_one import left\n",
    "made_up_one/left.py": "import made_up_one.right\n\n",
    "made_up_one/right.py": "import made_up_one.left\nimport made_up_two\n",
    "made_up_one/inner/deep.py": "",
    "made_up_two/__init__.py": "",
    "made_up_two/message_pb2.py": "# DO NOT EDIT\n",
    "tests/test_left.py": "def test_left() -> None:\n    pass\n",
    "benchmarks/results/one.md": "1\n2\n3\n",
    "clients/java/gen/A.java": "a\nb\n",
    ".gitattributes": "clients/*/gen/** linguist-generated\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of _FILES."""
    for name, text in _FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in ("init", "add ."):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_tree_is_counted(tree: Path) -> None:
    assert structure.lines(tree)["product Python lines"] == 5
    assert structure.lines(tree)["lines of made_up_one"] == 5
    assert structure.folders(tree)["boxes in made_up_one"] == 3
    imports = structure.imports(tree)
    assert (imports["import circles"], imports["modules in import circles"]) == (1, 2)
    assert imports["arrows between packages"] == 1
    generated = structure.generated(tree)
    assert generated["generated lines of .java"] == 2
    assert generated["committed generated lines"] == 3
    assert generated["lines of benchmarks/results"] == 3


def test_a_circle_is_a_group_that_reaches_itself() -> None:
    """Two circles that only touch by an arrow are two."""
    arrows = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}, "e": {"a"}}
    assert structure.circles(arrows) == {frozenset("ab"), frozenset("cd")}
