"""Neighbours on disk: the same after reading, and errors that name the file."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tandem.lab.neighbours.lists.corpus_neighbours import LISTS, with_pools
from tandem.lab.neighbours.lists.neighbour_file import (
    NeighbourManifest,
    check_same_base,
    load_neighbours,
    read_manifest,
    save_neighbours,
)
from tandem.platform.files.json_object import FileInvalid
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


def test_other_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.neighbours"
    save_neighbours(path, planted_neighbours(seed=1, image_count=8, depth=4))
    with safe_open(path, framework="np") as file:
        manifest = json.loads(file.metadata()["neighbours_manifest"])
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-8])
    save_file(load_file(path), tmp_path / "plain")
    newer = {"neighbours_manifest": json.dumps(manifest | {"format_version": 9})}
    save_file(load_file(path), tmp_path / "newer", newer)

    for name, message in [
        ("plain", "plain is no whole file of neighbours .it has no manifest"),
        ("cut", "cut is no whole file"),
        ("newer", "format 9 instead of 1"),
        ("none", "none is missing"),
    ]:
        with pytest.raises(FileInvalid, match=message):
            load_neighbours(tmp_path / name)


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
