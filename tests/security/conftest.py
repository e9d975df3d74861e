"""One locked stack of real processes, with the small model, for all tests of the locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.group_end import at_group_end
from tests.support.security.collector import Collector, collecting
from tests.support.security.run_counts import is_full
from tests.support.security.secured_stack import SecuredStack

_GROUP = "secured-stack"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps these tests on one worker: they share the stack."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.xdist_group(_GROUP))
            item.add_marker(pytest.mark.timeout(900 if is_full() else 300))


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Where all spans of the stack go."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="session")
def secured(
    tmp_path_factory: pytest.TempPathFactory, lone_instances: Path, collector: Collector
) -> Iterator[SecuredStack]:
    """Every process, serving behind its locks."""
    folder = tmp_path_factory.mktemp("secured")
    with SecuredStack(folder, lone_instances, collector.address) as running:
        running.start()
        at_group_end(_GROUP, running.stop)
        yield running  # type: ignore[misc]
