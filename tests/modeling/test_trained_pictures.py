"""The pictures that a checkpoint was trained on, as its folder records them."""

import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.trained_pictures import FILE_NAME, TrainedPictures
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint


def digests(*names: str) -> list[bytes]:
    """Returns digests of made-up pictures."""
    return [sha256(name.encode()).digest() for name in names]


def test_a_picture_is_known_by_its_bytes() -> None:
    pictures = TrainedPictures.of(digests("a", "b", "a"))

    assert len(pictures) == 2
    assert pictures.digests.nbytes == 16
    assert pictures.which(digests("b", "c", "a")) == [True, False, True]
    assert TrainedPictures.of([]).which(digests("a")) == [False]


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    both = TrainedPictures.of(digests("a")).joined(TrainedPictures.of(digests("a", "b")))
    both.write(tmp_path / FILE_NAME)

    read = TrainedPictures.read(tmp_path)

    assert read is not None
    assert read.which(digests("a", "b", "c")) == [True, True, False]
    assert both.joined(None) is both


def test_weights_never_lie_next_to_other_pictures(tmp_path: Path) -> None:
    """A process that is killed between the two files leaves no new weights without their list."""
    save_tiny_checkpoint(tmp_path, seed=1)
    loaded = load_checkpoint(tmp_path)

    def save(*names: str) -> None:
        pictures = TrainedPictures.of(digests(*names))
        save_checkpoint(tmp_path, loaded.model, loaded.tokenizer, {}, trained_pictures=pictures)

    save("a")
    blocked = tmp_path / f".model.safetensors.{os.getpid()}"
    blocked.mkdir()  # the weights are written there first
    with pytest.raises(OSError, match=r"model\.safetensors"):
        save("a")
    stays = (tmp_path / "model.safetensors").is_file()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        save("b")

    known = TrainedPictures.read(tmp_path)
    assert stays
    assert not (tmp_path / "model.safetensors").exists()
    assert known is not None
    assert known.which(digests("a", "b")) == [False, True]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    np.save(path, np.zeros(3))
    for content in (path.read_bytes(), b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{FILE_NAME} is damaged"):
            TrainedPictures.read(tmp_path)


def test_a_checkpoint_has_its_own_or_none(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path, seed=1)
    loaded = load_checkpoint(tmp_path)
    assert loaded.trained_pictures is None
    pictures = TrainedPictures.of(digests("a"))

    save_checkpoint(tmp_path, loaded.model, loaded.tokenizer, {}, trained_pictures=pictures)
    again = load_checkpoint(tmp_path).trained_pictures
    save_checkpoint(tmp_path, loaded.model, loaded.tokenizer, {})

    assert again is not None
    assert again.which(digests("a", "b")) == [True, False]
    assert load_checkpoint(tmp_path).trained_pictures is None
