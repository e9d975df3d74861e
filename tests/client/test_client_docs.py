"""docs/client.md: its Python runs as it stands there, against a real orchestrator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.client import AsyncClient, Client
from tandem.client.retries import RetryPolicy, is_passing
from tandem.errors import ERROR_CLASSES, error_from_reason
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


def test_the_page_names_the_reasons_that_are_repeated() -> None:
    """Those with another status than UNAVAILABLE by name, and the policy's numbers."""
    errors = (error_from_reason(reason, "text", {}) for reason in ERROR_CLASSES)
    for error in errors:
        if is_passing(error) and error.status != "UNAVAILABLE":
            assert f"`{error.reason}`" in PAGE
    policy = RetryPolicy()

    assert f"a budget of {policy.budget_tokens:g} tokens" in PAGE
    assert f"puts {policy.budget_refill:g} back" in PAGE
    assert f"at random within {policy.initial_backoff_seconds:g} s" in PAGE
    assert f"up to {policy.max_backoff_seconds:g} s" in PAGE
    assert policy.max_attempt_count == 4
    assert "up to three times" in PAGE


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_page_names_every_method(client: type) -> None:
    """Or a reader would not know that it is there."""
    methods = {name for name in vars(client) if not name.startswith("_")} - {"close"}

    assert len(methods) >= 8
    assert {name for name in methods if f"`{name}`" not in PAGE} == set()
