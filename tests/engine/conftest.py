"""An engine over the small model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem import Engine


@pytest.fixture
def engine(tmp_path: Path, tiny_repository: Path) -> Iterator[Engine]:
    """A new folder, open."""
    with Engine(tmp_path / "engine", model=tiny_repository) as opened:
        yield opened
