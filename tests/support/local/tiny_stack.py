"""One stack of real processes with the small model, for tests that break something in it.

A plugin, named in tests/conftest.py, and not a conftest: the tests are of several folders. All of
them are on one worker, by the group TINY_STACK.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.stack.stack import LocalStack, Ports
from tests.support.group_end import at_group_end

_GROUP = "tiny-stack"
TINY_STACK = pytest.mark.xdist_group(_GROUP)


@pytest.fixture(scope="session")
def tiny_stack(
    tmp_path_factory: pytest.TempPathFactory, lone_instances: Path
) -> Iterator[LocalStack]:
    """Every process, two shards that keep words. A test may end processes that it starts again."""
    with LocalStack(
        tmp_path_factory.mktemp("tiny-stack"),
        lone_instances,
        Ports.free(shard_count=2),
        settings={"INDEX_KEYWORDS_ENABLED": "true"},
    ) as running:
        running.start()
        at_group_end(_GROUP, running.stop)
        yield running
