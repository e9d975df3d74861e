"""Describes how a picture and a detector's regions become tensors: part of the manifest.

Two different settings are two different models, so whatever changes a pixel is a field here. What
can run inside the exported graph (rescaling, mean, standard deviation) does.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tandem.platform.files.json_object import shown, within

_MAX_SIZE: Final = 100_000_000


class Fit(StrEnum):
    """How a picture of any shape becomes the square that a model reads."""

    LETTERBOX = "letterbox"
    """Scales the longer side, and centres the picture on white."""
    SQUASH = "squash"
    """Scales both sides to the square, whatever the shape; or to `squash_to`, and cuts the square
    out of the centre."""
    CROP = "crop"
    """Scales the shorter side to `resize_to`, and cuts the square out of the centre."""


class Filter(StrEnum):
    """Pillow's resampling filters, by the names of hub configurations."""

    NEAREST = "nearest"
    BOX = "box"
    BILINEAR = "bilinear"
    HAMMING = "hamming"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Transparency(StrEnum):
    """How transparent pixels are read."""

    WHITE = "white"
    """Blends them onto white."""
    IGNORE = "ignore"
    """Drops the alpha channel, as hub processors do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRules:
    """Describes how an image file becomes uint8 pixels [size, size, 3], RGB and upright."""

    size: int
    """Pixels per side of the square."""
    fit: Fit = Fit.LETTERBOX
    filter: Filter = Filter.BICUBIC
    resize_to: int | None = None
    """The shorter side before a crop, in pixels; None means `size`. Only for Fit.CROP."""
    squash_to: tuple[int, ...] | None = None
    """Width and height before a crop, in pixels; None means the square. Only for Fit.SQUASH."""
    transparency: Transparency = Transparency.WHITE
    is_exact: bool = False
    """Whether every pixel is filtered at full size, as hub processors do, up to 25 megapixels.

    Otherwise large pictures are first reduced by whole blocks, which is faster and differs little.
    """

    def check(self) -> None:
        """Raises ValueError unless the rules give a full square."""
        within("size", self.size, 1, _MAX_SIZE)
        if self.resize_to is not None:
            if self.fit is not Fit.CROP:
                raise ValueError(f"resize_to is {self.resize_to}, and pictures are not cropped")
            within("resize_to", self.resize_to, self.size, _MAX_SIZE)
        if self.squash_to is not None:
            if self.fit is not Fit.SQUASH or len(self.squash_to) != 2:
                raise ValueError(
                    f"squash_to is {shown(self.squash_to)}, and {self.fit} takes no such sides"
                )
            for side in self.squash_to:
                within("squash_to", side, self.size, _MAX_SIZE)


class BoxNumbers(StrEnum):
    """Lists the numbers that stand for a region's box, in units of the picture's sides."""

    CORNERS_SIDES = "corners_sides"
    """x1, y1, x2, y2, width, height: OSCAR."""
    CORNERS_SIDES_AREA = "corners_sides_area"
    """The same and width times height: UNITER and VILLA."""
    CORNERS_AREA = "corners_area"
    """x1, y1, x2, y2, width times height: M3P."""
    NONE = "none"
    """No number: VisualBERT."""

    @property
    def width(self) -> int:
        widths = {"corners_sides": 6, "corners_sides_area": 7, "corners_area": 5, "none": 0}
        return widths[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRules:
    """Describes how a detector's regions become float16 vectors [R, D], padded with zeros.

    A vector is the detector's features, unchanged, and the numbers of its box: D is the sum of
    both widths. The first `max_regions` count, in the detector's order.
    """

    feature_width: int
    """Features of a box. Another width is another detector's."""
    box_numbers: BoxNumbers
    max_regions: int

    @property
    def vector_width(self) -> int:
        """D: numbers of a region."""
        return self.feature_width + self.box_numbers.width

    def __str__(self) -> str:
        return f"{self.max_regions} regions of {self.feature_width:,} features"

    def check(self) -> None:
        """Raises ValueError unless a region has numbers and an image may have one."""
        within("feature_width", self.feature_width, 1, _MAX_SIZE)
        within("max_regions", self.max_regions, 1, _MAX_SIZE)


PictureRules = ImageRules | RegionRules
