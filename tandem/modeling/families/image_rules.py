"""Reads how a published model wants its pictures, from its image processor.

The processor is made by the class of transformers that its file names. Its settings become our
rules, which are held to the class: pictures of several shapes must become the pixels that it makes.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import Filter, Fit, ImageRules, Transparency
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import shown

_PROCESSOR_FILES: Final = ("processor_config.json", "preprocessor_config.json")
# Old names of the processors, and the two ways in which a newer one is implemented.
_SUFFIXES: Final = ("FeatureExtractor", "ImageProcessorFast", "ImageProcessorPil", "ImageProcessor")
_CONVNEXT: Final = "ConvNext"
# ConvNeXT's squashes pictures of this size and larger ones.
_CONVNEXT_SQUASHED_SIZE: Final = 384
# Pillow's numbers.
_FILTERS: Final = {
    0: Filter.NEAREST,
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}

Sides = tuple[int, int]


def read_image_rules(
    folder: PublishedFolder,
    processor: str,
    image_size: Any,  # noqa: ANN401  of a file
    *,
    is_squashed: bool = False,
) -> tuple[ImageRules, PixelScale]:
    """Returns the rules of the folder's image processor, and what of them runs in the graph.

    `processor` is the family's image processor, as "CLIPImageProcessor"; `image_size` what the
    image tower takes. Refuses rules that give other pixels, or do not end in that size. With
    `is_squashed` pictures are squashed to it, though the processor would keep their shape.
    """
    with folder.reading("its image processor is not served"):
        settings = read_processor(folder, processor)
        if is_squashed:
            fit, sides, size = Fit.SQUASH, (image_size, image_size), image_size
        else:
            fit, sides, size = processor_fit(settings)
        if image_size not in (size, [size, size], (size, size)):
            raise folder.refused(
                f"its image processor makes pictures of {size} pixels per side, and its image "
                f"tower takes {shown(image_size)}; take the {_PROCESSOR_FILES[1]} of the same model"
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


def has_processor(folder: PublishedFolder) -> bool:
    """Returns whether the folder says how pictures are made."""
    return any(folder.has(name) for name in _PROCESSOR_FILES)


def read_processor(folder: PublishedFolder, own: str) -> Any:  # noqa: ANN401  of transformers
    """Returns the folder's image processor, which holds its settings and their defaults.

    `own` is the class of the model's family, as "CLIPImageProcessor", for a file that names none.
    """
    import transformers

    fields = _fields(folder)
    named = fields.get("image_processor_type") or fields.get("feature_extractor_type") or own
    stem = str(named)
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    # This form of the class needs no torchvision.
    kind = getattr(transformers, f"{stem}ImageProcessorPil", None)
    if kind is None:
        raise folder.unserved(f"its image processor is {shown(named)}, which is not served")
    return kind(**fields)


def processor_fit(settings: Any) -> tuple[Fit, Sides, int]:  # noqa: ANN401  of transformers
    """Returns the fit, what pictures are scaled to, and the side of the final square.

    They are scaled to a width and a height; for a crop both are the length of the shorter side.
    """
    size = settings.size
    if type(settings).__name__.startswith(_CONVNEXT):
        side = size.shortest_edge
        if side >= _CONVNEXT_SQUASHED_SIZE:
            return Fit.SQUASH, (side, side), side
        shorter = int(side / settings.crop_pct)
        return Fit.CROP, (shorter, shorter), side
    cut = settings.crop_size.height if settings.do_center_crop else None
    if size.shortest_edge:
        return Fit.CROP, (size.shortest_edge, size.shortest_edge), cut or size.shortest_edge
    return Fit.SQUASH, (size.width, size.height), cut or size.width


def _pixel_scale(settings: Any) -> PixelScale:  # noqa: ANN401  of transformers
    factor = settings.rescale_factor if settings.do_rescale else 1.0
    if settings.do_normalize:
        return PixelScale(factor, settings.image_mean, settings.image_std)
    return PixelScale(factor, 0.0, 1.0)


def _fields(folder: PublishedFolder) -> Mapping[str, Any]:
    for name in _PROCESSOR_FILES:
        fields = folder.optional_fields(name)
        # transformers 5 writes one file for all processors of a model, 4 one for the images.
        fields = fields.get("image_processor", {}) if name == _PROCESSOR_FILES[0] else fields
        if isinstance(fields, dict) and fields:
            return fields
    raise folder.refused(
        f"it has no {_PROCESSOR_FILES[1]}, nor image_processor in {_PROCESSOR_FILES[0]}, so its "
        "preprocessing of pictures is unknown; copy the file of the same model into it"
    )


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
