"""Tests that a file of tensors that cannot be written is named with the cause."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tandem.platform.files.tensor_file import failures_named, opened_for_torch
from tests.support.faults.small_disk import SmallDisk

TENSORS = {"weights": torch.zeros(1 << 20)}


def by_torch(path: Path) -> None:
    with opened_for_torch(path) as file:
        torch.save(TENSORS, file)


def by_torchscript(path: Path) -> None:
    linear = torch.jit.trace(torch.nn.Linear(1_000, 1_000), torch.zeros(1_000))
    with opened_for_torch(path) as file:
        torch.jit.save(linear, file)


def by_safetensors(path: Path) -> None:
    with failures_named(path):
        save_file(TENSORS, path)


@pytest.mark.parametrize("write", [by_torch, by_torchscript, by_safetensors])
@pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or "")
def test_a_full_disk_is_named(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Given a path, torch.jit.save ends the process, and torch.save speaks of positions."""
    with SmallDisk(tmp_path / "disk", 2 << 20) as disk:
        path = disk.path / "weights"

        with pytest.raises(OSError, match="No space left on device") as raised:
            write(path)

        assert str(path) in str(raised.value)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    by_torch(tmp_path / "weights.pt")
    by_torchscript(tmp_path / "model.pt")

    assert torch.equal(torch.load(tmp_path / "weights.pt")["weights"], TENSORS["weights"])
    assert torch.jit.load(tmp_path / "model.pt")(torch.zeros(1_000)).shape == (1_000,)


def test_another_error_of_torch_stays(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="size mismatch"), opened_for_torch(tmp_path / "weights"):
        raise RuntimeError("size mismatch")
