"""One stack of real processes with the small model, for tests that break something in it.

A plugin, named in tests/conftest.py, and not a conftest: the tests are of several folders. All of
them are on one worker, by the group TINY_STACK.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.local.stack import LocalStack, Ports

TINY_STACK = pytest.mark.xdist_group("tiny-stack")


@pytest.fixture(scope="session")
def tiny_stack(
    tmp_path_factory: pytest.TempPathFactory, lone_instances: Path
) -> Iterator[LocalStack]:
    """Every process, two shards. A test may end processes that it starts again."""
    data_folder = tmp_path_factory.mktemp("tiny-stack")
    with LocalStack(data_folder, lone_instances, Ports.free(shard_count=2)) as running:
        running.start()
        yield running
