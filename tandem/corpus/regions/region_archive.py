"""Reads archives of arrays, one an image: UNITER's, or that of bottom-up-attention in PyTorch.

    norm_bb [n, 6]   features [n, F]   conf [n, 1]                      UNITER; normalised boxes
    bbox [n, 4] px   x [n, F]   num_bbox   image_w   image_h            bottom-up-attention

The latter's program also stores `info`, a pickled dict, which is never opened.
UNITER reads the first regions only: as many as have a confidence over a threshold, within bounds.
"""

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import CorpusFileMissing, RegionsUnreadable
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.plain_file import list_folder, open_plain_file
from tandem.corpus.regions.regions import FEATURE_WIDTH, RegionReader, Regions, checked_regions

SUFFIX: Final = ".npz"

MAX_ARCHIVE_BYTES: Final = 64 * 2**20
"""Decompressed. A hundred regions of 2,048 features and 1,601 labels take 1.5 MB."""

_READ: Final = frozenset(
    {"norm_bb", "features", "conf", "x", "bbox", "num_bbox", "image_w", "image_h"}
)
BROKEN_ARRAYS: Final = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""Errors of numpy and zipfile for files that are cut short, damaged or something else."""


@dataclass(frozen=True, slots=True)
class RegionChoice:
    """Says how many of an archive's regions count, as the names of UNITER's folders do."""

    least_confidence: float = 0.2
    least_count: int = 10
    most_count: int = 100

    def count(self, confidences: NDArray[Any]) -> int:
        """Returns how many regions count, of those with these confidences."""
        over = int((confidences > self.least_confidence).sum())
        return min(self.most_count, max(self.least_count, over), confidences.size)


def archived_arrays(place: str, archive: bytes) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an .npz that regions are made of, and no others.

    Raises RegionsUnreadable for a damaged or too large archive.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members:
            size_bytes = sum(member.file_size for member in members.infolist())
        if size_bytes > MAX_ARCHIVE_BYTES:
            raise RegionsUnreadable(
                f"{place} would fill {size_bytes:,} bytes, the limit is {MAX_ARCHIVE_BYTES:,}"
            )
        with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if name in _READ}
    except RegionsUnreadable:
        raise
    except BROKEN_ARRAYS as error:
        raise RegionsUnreadable(
            f"{place} is not a whole archive of arrays ({error}); copy it again"
        ) from error


def archived_regions(
    place: str,
    arrays: Mapping[str, NDArray[Any]],
    choice: RegionChoice | None = None,
    count: int | None = None,
    feature_width: int = FEATURE_WIDTH,
) -> Regions:
    """Returns the regions of an image's arrays, by the layout that their names show.

    `count` is how many of UNITER's count where a side file says it; otherwise `choice` decides.
    Raises RegionsUnreadable as `checked_regions`, and for arrays of other names.
    """
    if {"norm_bb", "features"} <= arrays.keys():
        features, boxes = arrays["features"], arrays["norm_bb"]
        if count is None and "conf" in arrays:
            count = (choice or RegionChoice()).count(arrays["conf"])
        # The side file gives at least its fewest to an image of fewer too, where all count.
        kept = slice(count)
        return checked_regions(place, features[kept], boxes[kept, :4], feature_width=feature_width)
    if {"x", "bbox", "image_w", "image_h"} <= arrays.keys():
        size = float(arrays["image_w"].item()), float(arrays["image_h"].item())
        # Rows after these fill an array up.
        kept = slice(int(arrays["num_bbox"].item()) if "num_bbox" in arrays else None)
        features, boxes = arrays["x"][kept], arrays["bbox"][kept]
        return checked_regions(place, features, boxes, size, feature_width)
    raise RegionsUnreadable(
        f"{place} has {', '.join(sorted(arrays)) or 'nothing'}; norm_bb and features are wanted, "
        "or x, bbox, image_w and image_h"
    )


class NpzFolder(RegionReader):
    """Reads regions from a folder with one archive an image, named by the image's id."""

    def __init__(self, folder: Path, left_out: LeftOut | None = None) -> None:
        """Counts other files in `left_out`; raises CorpusFileMissing for a folder without any."""
        super().__init__(folder)
        left_out = LeftOut() if left_out is None else left_out
        files, _ = list_folder(folder, folder, left_out)
        self._found = {path.stem: path for path in files if path.suffix == SUFFIX}
        for path in files:
            if path.suffix != SUFFIX:
                left_out.pass_over(path)
        if not self._found:
            raise CorpusFileMissing(f"no {SUFFIX} file in {folder}; give a detector's output")

    def _read(self, image_id: str, place: str) -> Regions:
        path = self._found[image_id]
        with open_plain_file(path, self._path) as file:
            arrays = archived_arrays(str(path), file.read())
        return archived_regions(str(path), arrays, feature_width=self.feature_width)
