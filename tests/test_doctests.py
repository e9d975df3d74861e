"""The examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

TANDEM = Path(__file__).parents[1] / "tandem"


def test_every_example_is_true() -> None:
    files = [each for each in TANDEM.rglob("*.py") if ">>> " in each.read_text(encoding="utf-8")]
    names = [".".join(each.relative_to(TANDEM.parent).with_suffix("").parts) for each in files]

    failed = [name for name in names if doctest.testmod(importlib.import_module(name)).failed]

    assert len(names) > 20
    assert failed == []
