"""docs/client.md: its Python runs as it stands there, against a real orchestrator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.client import AsyncClient, Client
from tests.support.orchestrator_svc.threaded_door import threaded_door

PAGE = (Path(__file__).parents[2] / "docs/client.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:7400"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    with threaded_door() as address, Client(address) as client:
        pictures = [(f"scenes-test-{n:06}-0", str(n).encode()) for n in range(20)]
        assert not any(outcome.error for outcome in client.ingest(pictures, index_id="scenes"))
        yield address


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_runs(code: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it asserts holds, it prints something, and each search finds something."""
    exec(compile(code.replace(ADDRESS, address), "docs/client.md", "exec"), {})

    printed = capsys.readouterr().out
    assert printed
    for index, found in (('index_id="scenes"', "scenes-test-"), ('index_id="cups"', "cup-")):
        assert index not in code or found in printed


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_page_names_every_method(client: type) -> None:
    """Or a reader would not know that it is there."""
    methods = {name for name in vars(client) if not name.startswith("_")} - {"close"}

    assert len(methods) >= 8
    assert {name for name in methods if f"`{name}`" not in PAGE} == set()
