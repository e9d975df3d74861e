"""Reads the tab-separated rows of OSCAR's later release, VinVL.

    features.tsv       image id, number of boxes, …, base64 of float32 [n, F + 6]
    features.lineidx   the byte at which each line starts, one a line
    imageid2idx.json   image id to line number, from 0

The last column counts. Without the two side files, the rows are read once to find the ids.
"""

from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusMalformed, RegionsUnreadable
from tandem.corpus.regions.regions import RegionReader, Regions, json_of, split_vectors
from tandem.corpus.regions.tsv_rows import base64_matrix, row_fields, row_starts, whole_number

IDS_NAME: Final = "imageid2idx.json"
_STARTS_SUFFIX: Final = ".lineidx"


class VinvlTsv(RegionReader):
    """Reads regions from features.tsv, by the places that its side files give."""

    def __init__(self, path: Path) -> None:
        """Raises CorpusMalformed for side files that do not fit the rows."""
        super().__init__(path)
        starts, ids = path.with_suffix(_STARTS_SUFFIX), path.parent / IDS_NAME
        if starts.exists() and ids.exists():
            self._found = _starts_by_id(starts, ids, path.stat().st_size)
        else:
            self._found = row_starts(path)

    def _read(self, image_id: str, place: str) -> Regions:
        fields = row_fields(self._path, self._found[image_id])
        if len(fields) < 3 or fields[0].decode("utf-8", "replace").strip() != image_id.strip():
            raise RegionsUnreadable(
                f"{place} is not the row that the index gives ({fields[0][:40]!r}); the index is "
                "of another file"
            )
        count = whole_number(fields[1], f"{place}: the number of boxes")
        vectors = base64_matrix(fields[-1], count, f"{place}: features")
        return split_vectors(place, vectors, self.feature_width)


def _starts_by_id(starts_path: Path, ids_path: Path, size_bytes: int) -> dict[str, int]:
    starts = [int(line) for line in starts_path.read_text(encoding="ascii").split()]
    rows = json_of(ids_path)
    if max(starts, default=0) >= size_bytes or max(rows.values(), default=0) >= len(starts):
        raise CorpusMalformed(
            f"{starts_path.name} and {ids_path} name places outside their file; copy them again"
        )
    return {image_id: starts[row] for image_id, row in rows.items()}
