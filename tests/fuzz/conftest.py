"""One stack of real processes, with the small model, that the fuzzing has to itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.local.stack import LocalStack, Ports


@pytest.fixture(scope="session")
def fuzzed_stack(
    tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path
) -> Iterator[LocalStack]:
    """Every process, serving."""
    data_folder = tmp_path_factory.mktemp("fuzz")
    with LocalStack(data_folder, tiny_repository, Ports.free(shard_count=1)) as running:
        running.start()
        yield running
