"""The rooms import one another only in the directions that pyproject.toml states."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_keep_their_directions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lint-imports` finds nothing; where it does, its report says which import to undo."""
    # import-linter looks packages up from here, as its command does.
    monkeypatch.chdir(ROOT)

    exit_code = lint_imports(no_cache=True)

    assert exit_code == 0, capsys.readouterr().out
