"""Pickles of tensors: read where they are whole, refused by one name whatever is wrong."""

import random
from pathlib import Path

import pytest
import torch

from tandem.modeling.published.pickled_tensors import PickleRefused, read_pickled_tensors


def written(path: Path, *, is_zip: bool) -> bytes:
    """Writes two tensors and a number; returns the file's bytes."""
    content = {"weights": {"one": torch.ones(3), "two": torch.zeros(2, 2)}, "step": 7}
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    return path.read_bytes()


@pytest.mark.parametrize("is_zip", [True, False])
def test_saved_tensors_are_read_back(tmp_path: Path, *, is_zip: bool) -> None:
    written(tmp_path / "a.pt", is_zip=is_zip)

    content = read_pickled_tensors(tmp_path / "a.pt")

    assert torch.equal(content["weights"]["one"], torch.ones(3))
    assert content["step"] == 7


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("is_cut", [True, False])
def test_damaged_bytes_are_refused_or_read(tmp_path: Path, *, is_zip: bool, is_cut: bool) -> None:
    """By the one name: torch itself raises eight kinds of error of them."""
    whole = written(tmp_path / "a.pt", is_zip=is_zip)
    refusals = []

    for seed in range(80):
        rng, content = random.Random(seed), bytearray(whole)
        if is_cut:
            del content[rng.randrange(len(content)) :]
        else:
            for _ in range(4):
                content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / "a.pt").write_bytes(content)
        try:
            read_pickled_tensors(tmp_path / "a.pt")
        except PickleRefused as refusal:
            refusals.append(str(refusal))

    assert len(refusals) > 20  # or the damage shows nothing
    assert not any("weights_only" in refusal for refusal in refusals)


@pytest.mark.parametrize("share", [0.3, 0.999])
def test_a_large_file_that_is_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    """Of which torch says "[Errno 22] Invalid argument", as if the system could not read it."""
    path = tmp_path / "a.pt"
    torch.save({"one": torch.ones(100_000)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])

    with pytest.raises(PickleRefused, match="is damaged"):
        read_pickled_tensors(path)


def test_a_missing_file_is_not_reported_as_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_pickled_tensors(tmp_path / "none.pt")
