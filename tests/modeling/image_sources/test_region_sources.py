"""OSCAR's file of torch, and our own, read as any detector's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.regions.region_archive import NpzFolder
from tandem.modeling.image_sources.region_sources import (
    OscarPickle,
    StoredRegions,
    open_region_source,
)
from tandem.modeling.image_sources.region_tokens import region_tokens, write_regions

# x1, y1, x2, y2, width, height.
PLACE = [0.25, 0.5, 1.0, 1.0, 0.75, 0.5]
VECTORS = torch.cat([torch.full((1, 2048), 3.0), torch.tensor([PLACE])], dim=1)


def test_oscars_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "minival_img_frcnn_feats.pt"
    torch.save({391895: VECTORS, 42: VECTORS.repeat(2, 1)}, path)

    reader = open_region_source(path)

    assert isinstance(reader, OscarPickle)
    assert list(reader.image_ids()) == ["391895", "42"]
    assert len(reader.read("42")) == 2
    regions = reader.read("391895")
    assert regions.boxes is not None
    assert regions.boxes.tolist() == [PLACE[:4]]
    assert regions.features.tolist() == [[3.0] * 2048]
    with pytest.raises(RegionsMissing, match="'7'"):
        reader.read("7")


def test_other_vectors_are_named(tmp_path: Path) -> None:
    odd = {
        r"has .*vectors \[1, 2048\] instead of \[n, 2054\]": VECTORS[:, :2048],
        "has .*features that are NaN": VECTORS * float("nan"),
        "is not a plain tensor of real numbers": VECTORS.to_sparse(),
        "not a plain tensor": torch.ones(1).expand(10**7, 2054),
    }
    torch.save(dict(enumerate([*odd.values(), VECTORS])), tmp_path / "it.pt")
    reader = OscarPickle(tmp_path / "it.pt")

    for number, message in enumerate(odd):
        with pytest.raises(RegionsUnreadable, match=f"image '{number}' .*{message}"):
            reader.read(str(number))
    assert len(reader.read(str(len(odd)))) == 1


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.pt"
    torch.save({number: VECTORS.repeat(9, 1) for number in range(9)}, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorpusMalformed, match=r"it\.pt is damaged.*copy it again"):
        OscarPickle(path)


def test_a_file_of_other_things_is_refused(tmp_path: Path) -> None:
    for stored in ([VECTORS], {1: "text"}, {1: Path("/")}):
        torch.save(stored, tmp_path / "it.pt")
        with pytest.raises(CorpusMalformed, match=r"it\.pt"):
            OscarPickle(tmp_path / "it.pt")


def test_our_own_file_is_read_back(tmp_path: Path) -> None:
    boxes = np.array([[50, 0, 150, 100], [0, 0, 200, 50]])
    said = np.arange(4096).reshape(2, 2048) / 4096
    path = tmp_path / "regions.safetensors"
    write_regions(path, {"a": region_tokens(said, boxes, 200, 100)}, region_count=5)

    reader = open_region_source(path)
    regions = reader.read("a")

    assert isinstance(reader, StoredRegions)
    assert list(reader.image_ids()) == ["a"]
    assert len(regions) == 2
    assert regions.boxes is not None
    assert regions.boxes.tolist() == [[0.25, 0, 0.75, 1], [0, 0, 1, 0.5]]
    np.testing.assert_allclose(regions.features, said, atol=1e-3)
    with pytest.raises(RegionsMissing, match="'b'"):
        reader.read("b")


def test_other_layouts_are_found_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "7.npz", x=np.ones(1))

    assert isinstance(open_region_source(tmp_path), NpzFolder)
