"""Reads how a published model wants its pictures, from its image processor's configuration.

Shapes: B batch, H W pixels, C channels.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tandem.files.json_object import shown
from tandem.modeling.families.image_processor import PROCESSOR_FILES, read_fit, read_processor
from tandem.modeling.published.folder import PublishedFolder
from tandem.pictures.image import decode_image
from tandem.pictures.image_rules import Filter, Fit, ImageRules, Transparency

# Pillow's numbers.
_FILTERS: Final = {
    0: Filter.NEAREST,
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}


Numbers = float | Sequence[float]
"""One for each colour, or one for all three."""


class PixelScale(nn.Module):
    """Rescales and normalises pixels: uint8 [B, H, W, 3] to float32 [B, 3, H, W]."""

    mean_C11: Tensor  # noqa: N815  a shape
    std_C11: Tensor  # noqa: N815  a shape

    def __init__(self, factor: float, mean: Numbers, std: Numbers) -> None:
        super().__init__()
        self.factor = factor
        for name, numbers in (("mean_C11", mean), ("std_C11", std)):
            three = torch.tensor(numbers, dtype=torch.float32).expand(3)
            self.register_buffer(name, three.reshape(3, 1, 1))

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
    with folder.reading("its image processor is not served"):
        settings = read_processor(folder, processor)
        fit, sides, size = read_fit(settings)
        if is_squashed:
            fit, sides, size = Fit.SQUASH, (image_size, image_size), image_size
        if image_size not in (size, [size, size], (size, size)):
            raise folder.refused(
                f"its image processor makes pictures of {size} pixels per side, and its image "
                f"tower takes {shown(image_size)}; take the {PROCESSOR_FILES[1]} of the same model"
            )
        is_scaled_larger = sides != (size, size)
        rules = ImageRules(
            size=size,
            fit=fit,
            filter=_FILTERS[settings.resample],
            resize_to=sides[0] if is_scaled_larger and fit is Fit.CROP else None,
            squash_to=sides if is_scaled_larger and fit is Fit.SQUASH else None,
            # As transformers does: without do_convert_rgb it can only read pictures that are RGB.
            transparency=Transparency.WHITE,
            is_exact=True,
        )
        rules.check()
        scale = _pixel_scale(settings)
        if not is_squashed:
            _check_pixels(folder, settings, rules, scale)
    return rules, scale


def _pixel_scale(settings: Any) -> PixelScale:  # noqa: ANN401  of transformers
    factor = settings.rescale_factor if settings.do_rescale else 1.0
    if settings.do_normalize:
        return PixelScale(factor, settings.image_mean, settings.image_std)
    return PixelScale(factor, 0.0, 1.0)


def _check_pixels(
    folder: PublishedFolder,
    settings: Any,  # noqa: ANN401  of transformers
    rules: ImageRules,
    scale: PixelScale,
) -> None:
    """Refuses rules that give other pixels of small, high and wide pictures than the library."""
    size, random = rules.size, np.random.default_rng(0)
    for width, height in ((size // 2 + 1, size // 3 + 1), (size + 7, 2 * size), (2 * size, size)):
        levels = random.integers(0, 256, (height, width, 3), np.uint8)
        file = BytesIO()
        Image.fromarray(levels).save(file, "PNG")
        made = scale(torch.tensor(decode_image(file.getvalue(), rules))[None]).numpy()
        # Some classes leave colours alone, and then read no picture but RGB.
        own = settings(images=[Image.fromarray(levels)], return_tensors="np", do_convert_rgb=True)
        expected = own["pixel_values"]
        is_equal = made.shape == expected.shape and np.isfinite(made).all()
        if not is_equal or not np.allclose(made, expected, rtol=1e-3, atol=1e-3):
            raise folder.unserved(
                f"its {type(settings).__name__} makes other pixels of a picture of {width} x "
                f"{height}, as {list(expected.shape)}, than scaling, cropping and normalising do"
            )
