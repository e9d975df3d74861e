"""Files of tensors that cannot be written."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tandem.modeling.region_tokens import write_regions
from tandem.neighbours.leaprr.saved_model import save_leaprr
from tandem.neighbours.neighbour_file import save_neighbours
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.neighbours.planted_corpus import planted_neighbours
from tests.support.neighbours.served_corpus import tiny_leaprr

REGIONS = {"a": np.ones((4, 2054), np.float16)}


@contextmanager
def files_of(byte_count: int) -> Iterator[None]:
    """Lets no file grow beyond so many bytes, as a quota does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("lists", lambda path: save_neighbours(path, planted_neighbours(seed=1))),
        ("leaprr.safetensors", lambda path: save_leaprr(path, tiny_leaprr("code"))),
        ("regions", lambda path: write_regions(path, REGIONS, region_count=4)),
        ("model.safetensors", lambda path: save_tiny_checkpoint(path.parent)),
    ],
)
def test_a_full_disk_is_named(tmp_path: Path, name: str, write: Callable[[Path], object]) -> None:
    """As an OSError, which the command line shows in one line."""
    path = tmp_path / name
    with files_of(8_000), pytest.raises(OSError, match=f"{name} was not written: .*too large"):
        write(path)

    write(path)
    assert path.stat().st_size > 8_000
