"""Defines a detector's regions of an image as a content, and their form in stores and messages.

Bytes only, because the SDK has no numpy; tandem.model_io.pictures.region_vectors reads the
numbers.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, SupportsFloat

from tandem.contract.modality import Modality
from tandem.contract.record_wire import RecordWire
from tandem.errors import RegionsInvalid
from tandem.v1 import content_pb2

MAX_REGION_COUNT: Final = 256
MAX_FEATURE_WIDTH: Final = 16_384
MAX_IMAGE_SIDE: Final = 1_000_000
_FLOAT16_BYTES: Final = 2
_FLOAT32_BYTES: Final = 4
_BOX_BYTES: Final = 4 * _FLOAT32_BYTES
# region_count, feature_width, image_width, image_height, the features' bytes; then both arrays.
_HEADER: Final = struct.Struct("<5I")


@dataclass(frozen=True, slots=True)
class RegionContent:
    """A detector's regions of an image, in the detector's order."""

    modality: ClassVar = Modality.IMAGE

    features: bytes
    """Little-endian float16 or float32, region by region."""
    boxes: bytes
    """Little-endian float32: x1, y1, x2, y2 of each region, in pixels."""
    region_count: int
    feature_width: int
    image_width: int
    """In pixels; 1 if the boxes are normalised, and so the height."""
    image_height: int

    @property
    def has_half_features(self) -> bool:
        """Returns whether features are float16."""
        return len(self.features) == self.region_count * self.feature_width * _FLOAT16_BYTES

    @classmethod
    def of(
        cls,
        features: Iterable[Sequence[SupportsFloat]],
        boxes: Iterable[Sequence[SupportsFloat]],
        *,
        image_width: int,
        image_height: int,
    ) -> "RegionContent":
        """Returns the content for rows of numbers, also those of an array.

        `features` has a row for each region, `boxes` x1, y1, x2, y2 of each in pixels. They travel
        as float32. Raises RegionsInvalid for rows that do not fit each other.
        """
        feature_rows, box_rows = (
            _rows(name, each) for name, each in (("features", features), ("boxes", boxes))
        )
        if len(feature_rows) != len(box_rows):
            raise RegionsInvalid(
                why=f"there are {len(feature_rows):,} rows of features and {len(box_rows):,} boxes"
            )
        widths = {len(row) for row in feature_rows}
        if len(widths) != 1 or {len(row) for row in box_rows} != {4}:
            raise RegionsInvalid(
                why="features need rows of one length, and each box x1, y1, x2, y2"
            )
        content = cls(
            b"".join(map(_little_endian, feature_rows)),
            b"".join(map(_little_endian, box_rows)),
            len(feature_rows),
            widths.pop(),
            image_width,
            image_height,
        )
        return checked_region_content(content)

    def packed(self) -> bytes:
        """Returns all of it in one piece, as stores keep it and digests read it."""
        numbers = (self.region_count, self.feature_width, self.image_width, self.image_height)
        header = _HEADER.pack(*numbers, len(self.features))
        return header + self.features + self.boxes

    @classmethod
    def unpacked(cls, packed: bytes) -> "RegionContent":
        """Returns the content of `packed()`; raises RegionsInvalid for other bytes."""
        if len(packed) < _HEADER.size:
            raise RegionsInvalid(why="their header is cut short; send all bytes")
        *numbers, features_bytes = _HEADER.unpack_from(packed)
        end = _HEADER.size + features_bytes
        return checked_region_content(cls(packed[_HEADER.size : end], packed[end:], *numbers))


def checked_region_content(content: RegionContent) -> RegionContent:
    """Returns the content; raises RegionsInvalid unless counts are in range and fit the bytes."""
    for name, value, limit in (
        ("region_count", content.region_count, MAX_REGION_COUNT),
        ("feature_width", content.feature_width, MAX_FEATURE_WIDTH),
        ("image_width", content.image_width, MAX_IMAGE_SIDE),
        ("image_height", content.image_height, MAX_IMAGE_SIDE),
    ):
        if not 1 <= value <= limit:
            raise RegionsInvalid(why=f"{name} is {value:,}; send 1 to {limit:,}")
    value_count = content.region_count * content.feature_width
    if len(content.features) not in (_FLOAT16_BYTES * value_count, _FLOAT32_BYTES * value_count):
        raise RegionsInvalid(
            why=f"features have {len(content.features):,} bytes, and {content.region_count:,} x "
            f"{content.feature_width:,} values have {_FLOAT16_BYTES * value_count:,} in float16 or "
            f"{_FLOAT32_BYTES * value_count:,} in float32"
        )
    if len(content.boxes) != _BOX_BYTES * content.region_count:
        raise RegionsInvalid(
            why=f"boxes have {len(content.boxes):,} bytes instead of {_BOX_BYTES} a region"
        )
    return content


_REGIONS_WIRE = RecordWire(RegionContent, content_pb2.RegionContent)


def regions_to_proto(content: RegionContent) -> content_pb2.RegionContent:
    """Raises RegionsInvalid for regions that do not fit their counts."""
    return _REGIONS_WIRE.to_proto(checked_region_content(content))


def regions_from_proto(message: content_pb2.RegionContent) -> RegionContent:
    """Raises RegionsInvalid for regions that do not fit their counts."""
    return checked_region_content(_REGIONS_WIRE.from_proto(message))


def _rows(name: str, rows: Iterable[Sequence[SupportsFloat]]) -> list[list[float]]:
    try:
        return [[float(value) for value in row] for row in rows]
    except (TypeError, ValueError) as error:
        raise RegionsInvalid(why=f"{name} are not rows of numbers ({error})") from error


def _little_endian(row: list[float]) -> bytes:
    try:
        return struct.pack(f"<{len(row)}f", *row)
    except OverflowError as error:
        raise RegionsInvalid(why=f"a number is too large for float32 ({error})") from error
