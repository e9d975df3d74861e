"""Reads a detector's regions as image tokens from a precomputed file.

The file is safetensors: `tokens` float16 [N, R, 2054], and `counts` int64 [N], how many of an
image's R rows are regions. Its header has the record ids as a JSON list. Rows are read on demand,
so the file may be larger than memory.

Shapes: N images of the file, B records, n regions of one image, R regions at most, D = 2054.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tandem.corpus.readable_records import RecordFault, RecordUnreadable
from tandem.corpus.records import Record
from tandem.corpus.regions.image_names import ImageNames
from tandem.modeling.config import REGION_WIDTH
from tandem.platform.files.json_object import FileInvalid, check_file

_TOKENS, _COUNTS, _IDS = "tokens", "counts", "record_ids"
_UNUSED = "unused"
_LENGTH_BYTES = _COUNT_BYTES = 8
_SPARE_BYTES = 64


class RegionFileInvalid(ValueError):
    """A file of regions is damaged, or lacks a record."""


def region_tokens(
    said_nF: NDArray[np.floating[Any]],
    boxes_n4: NDArray[np.floating[Any]],
    width: float,
    height: float,
) -> NDArray[np.float16]:
    """Returns float16 [n, 2054], each region as OSCAR reads it (Li et al. 2020).

    `said_nF` are the detector's features, [n, 2048], unchanged; `boxes_n4` are x1, y1, x2, y2 in
    pixels of an image of that width and height. The 2,048 are followed by x1 / W, y1 / H, x2 / W,
    y2 / H, width / W, height / H. Raises ValueError for other shapes, and for a box outside the
    image, whose unit would be another.

    >>> tokens = region_tokens(np.zeros((1, 2048)), np.array([[50, 0, 100, 25]]), 200, 100)
    >>> tokens[0, 2048:].tolist()
    [0.25, 0.0, 0.5, 0.25, 0.25, 0.25]
    """
    if said_nF.shape != (len(boxes_n4), REGION_WIDTH - 6) or boxes_n4.shape[1:] != (4,):
        raise ValueError(
            f"regions have shapes {list(said_nF.shape)} and boxes {list(boxes_n4.shape)}, not "
            f"[n, {REGION_WIDTH - 6}] and [n, 4]"
        )
    corners_n4 = boxes_n4 / np.array([width, height, width, height])
    sides_n2 = corners_n4[:, 2:] - corners_n4[:, :2]
    # Detectors may count the last pixel as one more.
    if corners_n4.size and (corners_n4.min() < -0.01 or corners_n4.max() > 1.01):
        raise ValueError(f"boxes reach out of an image of {width:g} x {height:g} pixels")
    if (sides_n2 < 0).any():
        raise ValueError("boxes end before they begin; they are x1, y1, x2, y2")
    return np.concatenate([said_nF, corners_n4, sides_n2], axis=1).astype(np.float16)


def write_region_file(
    path: Path,
    regions: Iterable[tuple[str, NDArray[np.float16]]],
    most_ids: Sequence[str],
    region_count: int,
) -> int:
    """Writes the regions of one image at a time; returns how many images there were.

    `most_ids` are the images that may come, so that the file can be larger than memory. A file that
    is there is replaced once the new one is whole.
    """
    most = len(most_ids)
    room = len(_header(most_ids, most, region_count))
    part = path.with_name(f".{path.name}.part")
    written: list[str] = []
    counts: list[int] = []
    try:
        with part.open("wb") as file:
            file.seek(_LENGTH_BYTES + room + _COUNT_BYTES * most)
            for image_id, own in regions:
                tokens = np.zeros((region_count, REGION_WIDTH), "<f2")
                tokens[: len(own)] = own[:region_count]
                file.write(tokens.tobytes())
                written.append(image_id)
                counts.append(min(len(own), region_count))
            file.seek(0)
            file.write(room.to_bytes(_LENGTH_BYTES, "little"))
            header = _header(written, most, region_count)
            assert len(header) <= room, "each image less takes more off than it adds"
            file.write(header.ljust(room))
            file.write(np.array(counts, "<i8").tobytes())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return len(written)


def _header(ids: Sequence[str], most: int, region_count: int) -> bytes:
    """Returns the header of a safetensors file of these images, with room for `most` counts."""
    count, start = len(ids), _COUNT_BYTES * most
    tensors = {
        _COUNTS: ("I64", [count], [0, _COUNT_BYTES * count]),
        _UNUSED: ("I64", [most - count], [_COUNT_BYTES * count, start]),
        _TOKENS: (
            "F16",
            [count, region_count, REGION_WIDTH],
            [start, start + 2 * count * region_count * REGION_WIDTH],
        ),
    }
    entries = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        for name, (dtype, shape, offsets) in tensors.items()
    }
    header = {"__metadata__": {_IDS: json.dumps(list(ids))}, **entries}
    encoded = json.dumps(header).encode()
    # A file with fewer images has shorter numbers, except that one of none is not empty.
    return encoded.ljust(-(-(len(encoded) + _SPARE_BYTES) // 8) * 8)


def write_regions(
    path: Path, regions: Mapping[str, NDArray[np.float16]], region_count: int
) -> None:
    """Writes the first `region_count` regions of each record, [n, 2054], in their order."""
    write_region_file(path, regions.items(), list(regions), region_count)


class RegionFile:
    """Gives image tokens by record id, in any spelling of ImageNames, without reading pixels."""

    def __init__(self, path: Path) -> None:
        """Raises RegionFileInvalid naming a file that is not one of regions."""
        self._path = path
        try:
            check_file(path)
            self._file = safe_open(path, framework="pt")
            ids = json.loads((self._file.metadata() or {})[_IDS])
            self._counts = self._file.get_tensor(_COUNTS)
            self._tokens = self._file.get_slice(_TOKENS)
            shape = self._tokens.get_shape()
            dtype = self._tokens.get_dtype()
        except FileInvalid as error:
            raise RegionFileInvalid(f"{error}; it is not a file of regions") from error
        except (OSError, SafetensorError, KeyError, RecursionError, ValueError) as error:
            raise RegionFileInvalid(f"{path} is not a file of regions: {error!r}") from error
        wanted = [len(ids), (shape[1:2] or [0])[0], REGION_WIDTH]
        if (shape, dtype, len(self._counts)) != (wanted, "F16", len(ids)):
            raise RegionFileInvalid(
                f"{path} has {len(self._counts):,} counts and {dtype} tokens {shape}, not F16 "
                f"{wanted} as write_regions writes"
            )
        if self._counts.numel() and not 0 <= self._counts.min() <= self._counts.max() <= shape[1]:
            raise RegionFileInvalid(f"{path} counts regions outside 0 to {shape[1]}")
        self._rows = {record_id: row for row, record_id in enumerate(ids)}
        self._names = ImageNames(ids)

    def __contains__(self, record_id: str) -> bool:
        return self._names.find(record_id) is not None

    def record_ids(self) -> Iterator[str]:
        yield from self._rows

    def vectors(self, record_id: str) -> Tensor:
        """Returns a record's regions without padding, float16 [n, D]; raises RegionFileInvalid."""
        row = self._row(record_id)
        tokens_RD: Tensor = self._tokens[row]
        return tokens_RD[: int(self._counts[row])]

    def content(self, record: Record) -> NDArray[np.float16]:
        """Returns a record's regions, float16 [n, D]; raises RecordUnreadable if it cannot."""
        if record.record_id not in self:
            why = "the file of regions has none of it"
            raise RecordUnreadable(record, RecordFault.REGIONS_MISSING, why)
        row = self._row(record.record_id)
        tokens_RD: Tensor = self._tokens[row]
        # Padding too, which `of` gives: in attention zero times infinity is NaN.
        if not tokens_RD.isfinite().all():
            why = "the file has NaN or infinity among them"
            raise RecordUnreadable(record, RecordFault.REGIONS_UNREADABLE, why)
        vectors_nD: NDArray[np.float16] = tokens_RD[: int(self._counts[row])].numpy()
        return vectors_nD

    def of(self, records: Sequence[Record]) -> tuple[Tensor, Tensor]:
        """Returns float16 [B, R, D] and int64 [B, R]; raises RegionFileInvalid naming a record."""
        rows = [self._row(record.record_id) for record in records]
        tokens_BRD = torch.stack([self._tokens[row] for row in rows])
        numbers_R = torch.arange(tokens_BRD.shape[1])
        return tokens_BRD, (numbers_R < self._counts[rows][:, None]).long()

    def _row(self, record_id: str) -> int:
        name = self._names.find(record_id)
        if name is None:
            raise RegionFileInvalid(f"{self._path} has no regions of record {record_id!r}")
        return self._rows[name]
