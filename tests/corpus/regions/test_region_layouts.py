"""The reader of a path is found by what lies there."""

from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.regions.bottom_up_tsv import BottomUpTsv
from tandem.corpus.regions.m3p_h5 import M3pH5
from tandem.corpus.regions.region_archive import NpzFolder
from tandem.corpus.regions.region_layouts import open_regions
from tandem.corpus.regions.scan_precomp import ScanPrecomp
from tandem.corpus.regions.uniter_lmdb import UniterLmdb
from tandem.corpus.regions.vinvl_tsv import VinvlTsv
from tests.corpus.regions import (
    test_bottom_up_tsv,
    test_m3p_h5,
    test_scan_precomp,
    test_uniter_lmdb,
    test_vinvl_tsv,
)


def test_each_layout_is_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "7.npz", x=np.ones(1))
    bottom_up, vinvl = tmp_path / "val.tsv.3", tmp_path / "features.tsv"
    bottom_up.write_text(test_bottom_up_tsv.row("a") + "\n")
    vinvl.write_bytes(test_vinvl_tsv.row("a"))
    lmdb_folder = test_uniter_lmdb.write(tmp_path / "feat", {b"__keys__": b"[]"})

    found = {
        type(open_regions(path)): path
        for path in (
            tmp_path,
            bottom_up,
            vinvl,
            lmdb_folder,
            test_m3p_h5.write(tmp_path / "it.h5"),
            test_scan_precomp.write(tmp_path, ["a", "b"]),
        )
    }

    assert set(found) == {NpzFolder, BottomUpTsv, VinvlTsv, UniterLmdb, M3pH5, ScanPrecomp}


def test_nothing_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusFileMissing, match=r"notes.txt is not a known detector output"):
        open_regions(tmp_path / "notes.txt")
