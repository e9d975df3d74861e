"""Finds the reader of a detector's file or folder."""

from pathlib import Path

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.regions.bottom_up_tsv import COLUMN_COUNT, BottomUpTsv
from tandem.corpus.regions.region_archive import NpzFolder
from tandem.corpus.regions.regions import RegionReader
from tandem.corpus.regions.scan_precomp import IMAGES_END, ScanPrecomp
from tandem.corpus.regions.vinvl_tsv import IDS_NAME, VinvlTsv


def open_regions(path: Path, left_out: LeftOut | None = None) -> RegionReader:
    """Returns the reader of the layout that is found at `path`.

    A folder with data.mdb is UNITER's database, one with .npz an archive an image; a file is known
    by its name, a .tsv by its columns. Raises CorpusError as the readers do, and CorpusFileMissing
    for an unknown layout.
    """
    if path.is_dir():
        if (path / "data.mdb").exists():
            # Inside, as M3P's below: only these two layouts need the extra `regions`.
            from tandem.corpus.regions.uniter_lmdb import UniterLmdb

            return UniterLmdb(path)
        return NpzFolder(path, left_out)
    if path.suffix in (".h5", ".hdf5"):
        from tandem.corpus.regions.m3p_h5 import M3pH5

        return M3pH5(path)
    if path.name.endswith(IMAGES_END):
        return ScanPrecomp(path)
    if ".tsv" in path.suffixes:  # BAN's files end in .tsv.1.
        with open_plain_file(path) as file:
            column_count = file.readline().count(b"\t") + 1
        if (path.parent / IDS_NAME).exists() or column_count != COLUMN_COUNT:
            return VinvlTsv(path)
        return BottomUpTsv(path)
    raise CorpusFileMissing(
        f"{path} is not a known detector output: a .tsv, .h5, *{IMAGES_END}, OSCAR's .pt, or "
        " a folder with UNITER's data.mdb or with .npz files"
    )
