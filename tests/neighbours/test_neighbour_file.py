"""Neighbours on disk: the same after reading, and errors that name the file."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tandem.files.json_object import FileInvalid
from tandem.neighbours.corpus_neighbours import LISTS, with_pools
from tandem.neighbours.neighbour_file import (
    NeighbourManifest,
    check_same_base,
    load_neighbours,
    read_manifest,
    save_neighbours,
)
from tests.support.neighbours.planted_corpus import FINGERPRINT, planted_neighbours


def test_read_neighbours_are_those_written(tmp_path: Path) -> None:
    near = planted_neighbours(seed=1, image_count=8, depth=4)
    pooled = with_pools(near, {}, np.full((8, 2), 1.5), np.full((16, 2), -1.5))

    manifest = save_neighbours(tmp_path / "new" / "train.neighbours", pooled)

    read = load_neighbours(tmp_path / "new" / "train.neighbours")
    assert read_manifest(tmp_path / "new" / "train.neighbours") == manifest
    assert (manifest.k, manifest.image_count, manifest.text_count) == (4, 8, 16)
    assert (manifest.base, manifest.model_fingerprint) == ("BE + CE 2", FINGERPRINT)
    assert read.source == near.source
    assert list(read.text_ids) == list(near.text_ids)
    for name in LISTS:
        assert_array_equal(read.lists[name], near.lists[name])
    assert_array_equal(read.cross_similarity(), pooled.cross_similarity())
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["train.neighbours"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    before = path.read_bytes()
    broken = planted_neighbours(seed=2, image_count=8, depth=4)
    object.__setattr__(broken, "image_ids", [object()])

    with pytest.raises(TypeError):
        save_neighbours(path, broken)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["train.neighbours"]


def _changed(path: Path, name: str, **tensors: object) -> Path:
    """Writes the file again under another name with some tensors replaced."""
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    other = path.with_name(name)
    save_file({**load_file(path), **tensors}, other, metadata)  # type: ignore[dict-item]
    return other


def test_damaged_and_other_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    plain = tmp_path / "plain"
    save_file(load_file(path), plain)
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:-8])
    lists = load_file(path)["texts_of_image"]
    lists[2, 1] = lists[2, 0]
    twice = _changed(path, "twice", texts_of_image=lists)
    shorter = _changed(path, "shorter", texts_of_image=lists[:, :1].copy())
    nan = _changed(path, "nan", images=np.full((8, 16), np.nan, np.float32))

    for file, message in [
        (plain, "plain is not a whole file of neighbours: it has no manifest"),
        (cut, "cut is damaged or cut short"),
        (twice, "twice .*texts_of_image has, in row 2, an item twice"),
        (shorter, "shorter .*its manifest describes other lists"),
        (nan, "nan .*embedding 0 has length nan"),
        (tmp_path / "none", "none is missing"),
    ]:
        with pytest.raises(FileInvalid, match=message):
            load_neighbours(file)


def test_numbers_of_another_type_are_named(tmp_path: Path) -> None:
    """Instead of being cut off, or of failing in the middle of a training."""
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    whole = load_file(path)
    lists, answers = whole["texts_of_image"], whole["image_of_text"]
    narrow = np.eye(16, 12, dtype=np.float32)
    narrow[12:, 0] = 1

    cases: list[tuple[dict[str, object], str]] = [
        ({"texts_of_image": lists + np.float32(0.5)}, "texts_of_image is float.* no integers"),
        ({"image_of_text": answers > 3}, "image_of_text is bool"),
        ({"images": np.eye(8, 16, dtype=np.int32)}, "images is int32 .* no matrix of floats"),
        ({"texts": narrow}, "have 16 and 12 dimensions"),
        ({"image_pool_logits": np.zeros(8, np.float32)}, r"is float32 \[8\] and no matrix"),
        ({"images_of_text": np.full((16, 4), 8)}, "in row 0, an item that does not exist"),
        ({"texts_of_text": np.zeros((16, 0), np.int64)}, r"shape \(16, 0\), not 16 rows"),
        ({"image_pool_logits": np.full((8, 0), np.nan, np.float32)[:1]}, "logits of shape"),
        ({"image_of_text": np.where(answers == 7, 6, answers)}, "-image has no text: leave"),
    ]
    for number, (tensors, message) in enumerate(cases):
        file = _changed(path, f"file-{number}", **tensors)
        with pytest.raises(FileInvalid, match=message):
            load_neighbours(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("neighbours_manifest", "[]", "its manifest holds \\[\\] and no object"),
        ("image_ids", "[1, 2, 3, 4, 5, 6, 7, 8]", "its image_ids are no list of texts"),
        ("image_ids", '["a", "b", "c", "d", "e", "f", "g", "a"]', "two of its image_ids are equal"),
        ("image_ids", '["a"]', "8 images have 1 ids"),
    ],
)
def test_damaged_metadata_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, {**metadata, name: text})

    with pytest.raises(FileInvalid, match=message):
        load_neighbours(path)


def test_another_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    with safe_open(path, framework="np") as file:
        manifest = json.loads(file.metadata()["neighbours_manifest"])
    manifest["format_version"] = 9
    save_file(load_file(path), path, {"neighbours_manifest": json.dumps(manifest)})

    with pytest.raises(FileInvalid, match="format 9 instead of 1"):
        load_neighbours(path)


def test_lists_of_another_model_or_base_are_named() -> None:
    near = planted_neighbours(seed=1, image_count=8, depth=4)
    wanted = NeighbourManifest.of(near)
    pooled = with_pools(near, {}, np.zeros((8, 2)), np.zeros((16, 2)))
    check_same_base("dev", wanted, wanted, "train")

    other = planted_neighbours(seed=2, image_count=8, depth=4, fingerprint="b" * 64)
    with pytest.raises(ValueError, match=r"dev has lists of the model b{12}, and train of 5{12}"):
        check_same_base("dev", NeighbourManifest.of(other), wanted, "train")
    with pytest.raises(ValueError, match=r"dev has lists over BE \+ CE 2, and train over BE"):
        check_same_base("dev", NeighbourManifest.of(pooled), wanted, "train")
