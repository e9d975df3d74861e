"""Reads how a published model wants its pictures, from its image processor's configuration.

Shapes: B batch, H W pixels, C channels.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from tandem.model_io.json_object import shown
from tandem.model_io.preprocessing import Filter, Fit, ImageRules, Transparency
from tandem.modeling.families.image_processor import PROCESSOR_FILES, read_fit, read_processor
from tandem.modeling.families.published_folder import PublishedFolder

# Pillow's numbers.
_FILTERS: Final = {
    0: Filter.NEAREST,
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}


class PixelScale(nn.Module):
    """Rescales and normalises pixels: uint8 [B, H, W, 3] to float32 [B, 3, H, W]."""

    mean_C11: Tensor  # noqa: N815  a shape
    std_C11: Tensor  # noqa: N815  a shape

    def __init__(self, factor: float, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.factor = factor
        self.register_buffer("mean_C11", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std_C11", torch.tensor(std).view(3, 1, 1))

    def forward(self, pixels_BHWC: Tensor) -> Tensor:
        """Returns float32 [B, 3, H, W]."""
        pixels_BCHW = pixels_BHWC.permute(0, 3, 1, 2).to(torch.float32) * self.factor
        scaled: Tensor = (pixels_BCHW - self.mean_C11) / self.std_C11
        return scaled


def read_image_rules(
    folder: PublishedFolder,
    processor: str,
    image_size: Any,  # noqa: ANN401  of a file
    *,
    is_squashed: bool = False,
) -> tuple[ImageRules, PixelScale]:
    """Returns the rules of the folder's image processor, and what of them runs in the graph.

    `processor` is the family's image processor, as "CLIPImageProcessor"; `image_size` what the
    image tower takes. Refuses a processor of another kind, and rules that do not end in that size.
    With `is_squashed` pictures are squashed to it, though the processor would keep their shape.
    """
    settings = read_processor(folder, processor)
    if not settings.do_resize:
        raise folder.unserved("its image processor does not resize pictures to one size")
    if is_squashed:
        fit, sides, size = Fit.SQUASH, (image_size, image_size), image_size
    else:
        fit, sides, size = read_fit(folder, settings)
    if image_size not in (size, [size, size], (size, size)):
        raise folder.refused(
            f"its image processor makes pictures of {size} pixels per side, and its image tower "
            f"takes {shown(image_size)}; take the {PROCESSOR_FILES[1]} of the same model"
        )
    is_scaled_larger = sides != (size, size)
    rules = ImageRules(
        size=size,
        fit=fit,
        filter=_filter(folder, settings.resample),
        resize_to=sides[0] if is_scaled_larger and fit is Fit.CROP else None,
        squash_to=sides if is_scaled_larger and fit is Fit.SQUASH else None,
        # As transformers does: without do_convert_rgb it can only read pictures that are RGB.
        transparency=Transparency.WHITE,
        is_exact=True,
    )
    return rules, _pixel_scale(folder, settings)


def _filter(folder: PublishedFolder, number: Any) -> Filter:  # noqa: ANN401  of a file
    is_number = isinstance(number, int) and not isinstance(number, bool)
    found = _FILTERS.get(int(number)) if is_number else None
    if found is None:
        raise folder.malformed(f"resample is {shown(number)}, not one of {list(_FILTERS)}")
    return found


def _pixel_scale(folder: PublishedFolder, settings: Any) -> PixelScale:  # noqa: ANN401
    factor = settings.rescale_factor if settings.do_rescale else 1.0
    mean: tuple[float, ...] = (0.0,) * 3
    std: tuple[float, ...] = (1.0,) * 3
    if settings.do_normalize:
        mean = _three(folder, "image_mean", settings.image_mean)
        std = _three(folder, "image_std", settings.image_std)
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not is_number or not factor > 0 or min(std) <= 0:
        raise folder.malformed(
            f"rescale_factor is {shown(factor)} and image_std {shown(list(std))}; all must be "
            "above 0"
        )
    return PixelScale(factor, mean, std)


def _three(folder: PublishedFolder, name: str, value: Any) -> tuple[float, ...]:  # noqa: ANN401  of a file
    values = [value] * 3 if isinstance(value, int | float) else value
    is_three = isinstance(values, list | tuple) and len(values) == 3
    if not is_three or not all(isinstance(each, int | float) for each in values):
        raise folder.malformed(f"{name} is {shown(value)}, not three numbers")
    return tuple(float(each) for each in values)
