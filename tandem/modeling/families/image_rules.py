"""Reads how a published model wants its pictures, from its image processor's configuration.

Shapes: B batch, H W pixels, C channels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from tandem.model_io.image import MAX_IMAGE_PIXELS
from tandem.model_io.json_object import shown
from tandem.model_io.preprocessing import Filter, Fit, ImageRules, Transparency
from tandem.modeling.families.published_folder import PublishedFolder

_FILES: Final = ("processor_config.json", "preprocessor_config.json")
# Pillow's numbers.
_FILTERS: Final = {
    0: Filter.NEAREST,
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}
# Old names of the processors, and the two ways in which a newer one is implemented.
_SUFFIXES: Final = ("FeatureExtractor", "ImageProcessor", "ImageProcessorFast", "ImageProcessorPil")


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
    fields = _processor_fields(folder)
    told = _processor(folder, processor, fields)
    if not told.do_resize:
        raise folder.refused("its image processor does not resize pictures to one size")
    squash = (Fit.SQUASH, image_size, image_size)
    fit, resize_to, size = squash if is_squashed else _fit(folder, told)
    if image_size not in (size, [size, size], (size, size)):
        raise folder.refused(
            f"its image processor makes pictures of {size} pixels per side, and its image tower "
            f"takes {shown(image_size)}; take the {_FILES[1]} of the same model"
        )
    rules = ImageRules(
        size=size,
        fit=fit,
        filter=_filter(folder, told.resample),
        resize_to=None if resize_to == size else resize_to,
        transparency=Transparency.IGNORE,
        is_exact=True,
    )
    return rules, _pixel_scale(folder, told)


def _processor_fields(folder: PublishedFolder) -> Mapping[str, Any]:
    for name in _FILES:
        fields = folder.optional_fields(name)
        # transformers 5 writes one file for all processors of a model, 4 one for the images.
        fields = fields.get("image_processor", {}) if name == _FILES[0] else fields
        if isinstance(fields, dict) and fields:
            return fields
    raise folder.refused(
        f"it has no {_FILES[1]}, nor image_processor in {_FILES[0]}, so nothing says how its "
        "pictures are made; copy the file of the same model into it"
    )


def _processor(folder: PublishedFolder, processor: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401  of transformers
    import transformers

    kind_name = fields.get("image_processor_type", fields.get("feature_extractor_type", processor))
    stem = processor.removesuffix("ImageProcessor")
    if kind_name not in [f"{stem}{suffix}" for suffix in _SUFFIXES]:
        raise folder.refused(f"its image processor is {shown(kind_name)}, and {processor} is known")
    # The implementation that needs no torchvision; it holds the settings' defaults.
    kind = getattr(transformers, f"{processor}Pil")
    try:
        return kind(**fields)
    except Exception as error:  # whatever its checks raise
        raise folder.refused_by_library("its image processor cannot be read", error) from error


def _fit(folder: PublishedFolder, told: Any) -> tuple[Fit, int, int]:  # noqa: ANN401
    """Returns the fit, the side that pictures are scaled to, and that of the final square."""
    size, crop = told.size, told.crop_size if told.do_center_crop else None
    if getattr(told, "do_pad", None):
        raise folder.refused("its image processor pads pictures (do_pad), which is not supported")
    if crop is not None and crop.height != crop.width:
        raise folder.refused(
            f"it cuts pictures to {crop.width} x {crop.height}, which is not a square"
        )
    if size.shortest_edge and not size.longest_edge:
        if crop is None:
            raise folder.refused("its image processor leaves pictures their shape: no square")
        if crop.height > size.shortest_edge:
            raise folder.refused(
                f"it cuts squares of {crop.height} pixels out of pictures of {size.shortest_edge}"
            )
        if size.shortest_edge**2 > MAX_IMAGE_PIXELS:
            raise folder.refused(
                f"it scales pictures to {size.shortest_edge} pixels on their shorter side, more "
                f"than the {MAX_IMAGE_PIXELS:,} pixels of a picture that is decoded"
            )
        return Fit.CROP, int(size.shortest_edge), int(crop.height)
    if not size.height or size.height != size.width:
        raise folder.refused(f"it scales pictures to {dict(size)}, which is not a square")
    if crop is not None and crop.height != size.height:
        raise folder.refused(
            f"it squashes pictures to {size.height} pixels and cuts {crop.height} out of them, "
            "which is not supported"
        )
    return Fit.SQUASH, int(size.height), int(size.height)


def _filter(folder: PublishedFolder, number: Any) -> Filter:  # noqa: ANN401  of a file
    is_number = isinstance(number, int) and not isinstance(number, bool)
    found = _FILTERS.get(int(number)) if is_number else None
    if found is None:
        raise folder.refused(f"resample is {shown(number)}, not one of {list(_FILTERS)}")
    return found


def _pixel_scale(folder: PublishedFolder, told: Any) -> PixelScale:  # noqa: ANN401
    factor = told.rescale_factor if told.do_rescale else 1.0
    mean = _three(folder, "image_mean", told.image_mean) if told.do_normalize else (0.0,) * 3
    std = _three(folder, "image_std", told.image_std) if told.do_normalize else (1.0,) * 3
    if not isinstance(factor, int | float) or not factor > 0 or min(std) <= 0:
        raise folder.refused(
            f"rescale_factor is {shown(factor)} and image_std {shown(list(std))}; all must be "
            "above 0"
        )
    return PixelScale(factor, mean, std)


def _three(folder: PublishedFolder, name: str, value: Any) -> tuple[float, ...]:  # noqa: ANN401  of a file
    values = [value] * 3 if isinstance(value, int | float) else value
    is_three = isinstance(values, list | tuple) and len(values) == 3
    if not is_three or not all(isinstance(each, int | float) for each in values):
        raise folder.refused(f"{name} is {shown(value)}, not three numbers")
    return tuple(float(each) for each in values)
