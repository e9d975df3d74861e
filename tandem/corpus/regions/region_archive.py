"""Reads one image's archive of arrays: UNITER's, or that of bottom-up-attention in PyTorch.

    norm_bb [n, 6]   features [n, F]   conf [n, 1]                      UNITER; normalised boxes
    bbox [n, 4] px   x [n, F]   num_bbox   image_w   image_h            bottom-up-attention

UNITER reads the first regions only: as many as have a confidence over a threshold, within bounds.
"""

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.regions.regions import FEATURE_WIDTH, Regions, checked_regions

MAX_ARCHIVE_BYTES: Final = 64 * 2**20
"""Decompressed. A hundred regions of 2,048 features and 1,601 labels take 1.5 MB."""


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
    """Returns the arrays of an .npz; raises RegionsUnreadable for a damaged or too large one."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members:
            size_bytes = sum(member.file_size for member in members.infolist())
        if size_bytes > MAX_ARCHIVE_BYTES:
            raise RegionsUnreadable(
                f"{place} would fill {size_bytes:,} bytes, the limit is {MAX_ARCHIVE_BYTES:,}"
            )
        with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except RegionsUnreadable:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
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
    Raises RegionsUnreadable as `checked_regions`, and for other arrays.
    """
    if {"norm_bb", "features"} <= arrays.keys():
        features, boxes = arrays["features"], arrays["norm_bb"]
        if boxes.ndim != 2 or boxes.shape[1] != 6:
            raise RegionsUnreadable(f"{place} has norm_bb {list(boxes.shape)} instead of [n, 6]")
        if count is None:
            count = len(features)
            if "conf" in arrays:
                count = (choice or RegionChoice()).count(arrays["conf"])
        if count > len(features) or len(features) != len(boxes):
            raise RegionsUnreadable(
                f"{place} has {len(boxes):,} boxes and {len(features):,} features of {count:,}"
            )
        return checked_regions(
            place, features[:count], boxes[:count, :4], feature_width=feature_width
        )
    if {"x", "bbox", "image_w", "image_h"} <= arrays.keys():
        try:
            size = float(arrays["image_w"]), float(arrays["image_h"])
        except TypeError as error:
            raise RegionsUnreadable(f"{place} has an image_w that is not a number") from error
        return checked_regions(place, arrays["x"], arrays["bbox"], size, feature_width)
    raise RegionsUnreadable(
        f"{place} has {', '.join(sorted(arrays)) or 'nothing'}; norm_bb and features are wanted, "
        "or x, bbox, image_w and image_h"
    )
