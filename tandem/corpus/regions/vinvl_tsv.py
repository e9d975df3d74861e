"""Reads the tab-separated rows of OSCAR's later release, VinVL.

    features.tsv       image id, number of boxes, …, base64 of float32 [n, F + 6]
    features.lineidx   the byte at which each line starts, one a line
    imageid2idx.json   image id to line number, from 0

The last column counts. Without the two side files, the rows are read once to find the ids.
"""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.regions.base64_matrix import base64_matrix, whole_number
from tandem.corpus.regions.oscar_vector import split_vectors
from tandem.corpus.regions.regions import FEATURE_WIDTH, Regions, json_of

IDS_NAME: Final = "imageid2idx.json"
_STARTS_SUFFIX: Final = ".lineidx"


class VinvlTsv:
    """Reads regions from features.tsv, by the places that its side files give."""

    def __init__(self, path: Path, feature_width: int = FEATURE_WIDTH) -> None:
        """Raises CorpusMalformed for side files that do not fit the rows."""
        self._path, self._feature_width = path, feature_width
        starts, ids = path.with_suffix(_STARTS_SUFFIX), path.parent / IDS_NAME
        if starts.exists() and ids.exists():
            self._starts = _starts_by_id(starts, ids, path.stat().st_size)
        else:
            self._starts = _scanned_starts(path)

    def image_ids(self) -> Iterator[str]:
        """Yields the ids in the order of the index, or of the rows."""
        yield from self._starts

    def read(self, image_id: str) -> Regions:
        """Returns an image's regions; errors as `RegionReader.read`."""
        if image_id not in self._starts:
            raise RegionsMissing(place=self._path, image_id=image_id)
        with open_plain_file(self._path) as file:
            file.seek(self._starts[image_id])
            fields = file.readline().rstrip(b"\r\n").split(b"\t")
        place = f"{self._path}: image {image_id!r}"
        if len(fields) < 3 or fields[0].decode("utf-8", "replace") != image_id:
            raise RegionsUnreadable(
                f"{place} is not the row that the index gives ({fields[0][:40]!r}); the index is "
                "of another file"
            )
        count = whole_number(fields[1], f"{place}: the number of boxes")
        vectors = base64_matrix(fields[-1], count, f"{place}: features")
        return split_vectors(place, vectors, self._feature_width)


def _starts_by_id(starts_path: Path, ids_path: Path, size_bytes: int) -> dict[str, int]:
    starts = [int(line) for line in starts_path.read_text(encoding="ascii").split()]
    rows = json_of(ids_path)
    if max(starts, default=0) >= size_bytes or max(rows.values(), default=0) >= len(starts):
        raise CorpusMalformed(
            f"{starts_path.name} and {ids_path} name places outside their file; copy them again"
        )
    return {image_id: starts[row] for image_id, row in rows.items()}


def _scanned_starts(path: Path) -> dict[str, int]:
    with open_plain_file(path) as file:
        ids_and_sizes = [
            (line.partition(b"\t")[0].decode("utf-8", "replace"), len(line)) for line in file
        ]
    starts = accumulate((size for _, size in ids_and_sizes), initial=0)
    rows = [
        (image_id, start)
        for (image_id, _), start in zip(ids_and_sizes, starts, strict=False)
        if image_id.strip()  # a blank line at the end
    ]
    found = dict(rows)
    if len(found) < len(rows):
        raise CorpusMalformed(f"{path} has an image twice; remove one of the two rows")
    return found
