"""Reads a published image processor, by the class of transformers that its file names.

It reads any class that scales, crops, rescales and normalises as the library's base class does, and
ConvNeXT's, which scales in its own way. Any other class's code would have to run on every picture.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from tandem.model_io.image import MAX_IMAGE_PIXELS
from tandem.model_io.json_object import shown
from tandem.model_io.preprocessing import Fit
from tandem.modeling.families.published_folder import PublishedFolder

PROCESSOR_FILES: Final = ("processor_config.json", "preprocessor_config.json")
# Old names of the processors, and the two ways in which a newer one is implemented.
_SUFFIXES: Final = ("FeatureExtractor", "ImageProcessorFast", "ImageProcessorPil", "ImageProcessor")
_KNOWN: Final = ("CLIP", "SigLIP", "BLIP", "ViT", "DeiT", "BiT", "ConvNeXT")
_CONVNEXT: Final = "ConvNext"
# ConvNeXT's squashes pictures of this size and larger ones.
_CONVNEXT_SQUASHED_SIZE: Final = 384

Sides = tuple[int, int]


def read_processor(folder: PublishedFolder, own: str) -> Any:  # noqa: ANN401  of transformers
    """Returns the folder's image processor, which holds its settings and their defaults.

    `own` is the class of the model's family, as "CLIPImageProcessor": it stands where the file
    names none, and needs not scale as the others do. Refuses a class whose steps are its own.
    """
    fields = _fields(folder)
    kind = _kind(folder, fields, own)
    try:
        return kind(**fields)
    except Exception as error:  # whatever its checks raise
        raise folder.refused_by_library("its image processor cannot be read", error) from error


def read_fit(folder: PublishedFolder, settings: Any) -> tuple[Fit, Sides, int]:  # noqa: ANN401  of transformers
    """Returns the fit, what pictures are scaled to, and the side of the final square.

    They are scaled to a width and a height; for a crop both are the length of the shorter side.
    """
    if settings.size is None:
        raise folder.malformed("its image processor scales (do_resize) without a size")
    if type(settings).__name__.startswith(_CONVNEXT):
        return _convnext_fit(folder, settings)
    crop = _crop_side(folder, settings)
    size = settings.size
    if size.shortest_edge and not size.longest_edge:
        shorter = _side(folder, "size", size.shortest_edge)
        if crop is None:
            raise folder.unserved("its image processor keeps the shape of pictures: no square")
        scaled = Fit.CROP, (shorter, shorter), crop
    else:
        width, height = (size.width, size.height)
        if not width or not height:
            raise folder.unserved(
                f"it scales pictures to {shown(dict(size))}, which is not a square; only a width "
                "and a height, or a shorter side with a crop, are served"
            )
        sides = _side(folder, "size", width), _side(folder, "size", height)
        if crop is None and len(set(sides)) > 1:
            raise folder.unserved(
                f"it scales pictures to {shown(dict(size))}, which is not a square"
            )
        scaled = Fit.SQUASH, sides, crop or sides[0]
    _check_scaled(folder, *scaled)
    _check_padding(folder, settings, scaled[2])
    return scaled


def _fields(folder: PublishedFolder) -> Mapping[str, Any]:
    for name in PROCESSOR_FILES:
        fields = folder.optional_fields(name)
        # transformers 5 writes one file for all processors of a model, 4 one for the images.
        fields = fields.get("image_processor", {}) if name == PROCESSOR_FILES[0] else fields
        if isinstance(fields, dict) and fields:
            return fields
    raise folder.refused(
        f"it has no {PROCESSOR_FILES[1]}, nor image_processor in {PROCESSOR_FILES[0]}, so its "
        "preprocessing of pictures is unknown; copy the file of the same model into it"
    )


def _kind(folder: PublishedFolder, fields: Mapping[str, Any], own: str) -> type[Any]:
    """Returns the class that needs no torchvision."""
    named = fields.get("image_processor_type") or fields.get("feature_extractor_type") or own
    stems = [named.removesuffix(each) for each in _SUFFIXES if str(named).endswith(each)]
    kind = _class_of(stems[0]) if isinstance(named, str) and stems else None
    own_stem = own.removesuffix("ImageProcessor")
    if kind is None or not (stems[0] in (own_stem, _CONVNEXT) or _is_plain(kind)):
        raise folder.refused(
            f"its image processor is {shown(named)}, whose steps are not served; those of "
            f"{', '.join(_KNOWN)} and others that only scale, crop and normalise are. Take the "
            f"{PROCESSOR_FILES[1]} that the model was published with"
        )
    return kind


def _class_of(stem: str) -> type[Any] | None:
    import transformers

    try:
        kind = getattr(transformers, f"{stem}ImageProcessorPil", None)
    except Exception:  # the import of its module may raise anything
        return None
    return kind if isinstance(kind, type) else None


def _is_plain(kind: type[Any]) -> bool:
    """Returns whether a class has other settings than its base class, and the same steps."""
    from transformers.image_processing_backends import PilBackend

    if PilBackend not in kind.__mro__:
        return False
    added = kind.__mro__[: kind.__mro__.index(PilBackend)]
    return all(
        name == "__init__" or not inspect.isroutine(value)
        for each in added
        for name, value in vars(each).items()
    )


def _convnext_fit(folder: PublishedFolder, settings: Any) -> tuple[Fit, Sides, int]:  # noqa: ANN401
    sides = shown(dict(settings.size))
    also = " and do_center_crop" if settings.do_center_crop else ""
    if not settings.size.shortest_edge or settings.size.longest_edge or settings.do_center_crop:
        raise folder.unserved(
            f"its image processor is ConvNeXT's with size {sides}{also}; only a shorter side is "
            "served"
        )
    size = _side(folder, "size", settings.size.shortest_edge)
    if size >= _CONVNEXT_SQUASHED_SIZE:
        scaled = Fit.SQUASH, (size, size), size
    else:
        share = settings.crop_pct
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if not is_number or not 0 < share <= 1:
            raise folder.malformed(f"crop_pct is {shown(share)}, not a share above 0 and up to 1")
        shorter = int(size / share)
        scaled = Fit.CROP, (shorter, shorter), size
    _check_scaled(folder, *scaled)
    return scaled


def _crop_side(folder: PublishedFolder, settings: Any) -> int | None:  # noqa: ANN401  of transformers
    if not settings.do_center_crop:
        return None
    crop = settings.crop_size
    if crop is None or not crop.height or not crop.width:
        raise folder.refused(
            "its image processor crops (do_center_crop) without a height and a width in crop_size; "
            "take the file that the model was published with"
        )
    height, width = (_side(folder, "crop_size", each) for each in (crop.height, crop.width))
    if height != width:
        raise folder.unserved(f"it cuts pictures to {width} x {height}, which is not a square")
    return height


def _check_scaled(folder: PublishedFolder, fit: Fit, sides: Sides, size: int) -> None:
    if min(sides) < size:
        raise folder.unserved(
            f"it cuts squares of {size} pixels out of pictures of {min(sides)}, and pads what is "
            "missing, which is not supported"
        )
    if sides[0] * sides[1] > MAX_IMAGE_PIXELS:
        what = "on their shorter side" if fit is Fit.CROP else f"x {sides[1]}"
        raise folder.malformed(
            f"it scales pictures to {sides[0]} pixels {what}, more than the "
            f"{MAX_IMAGE_PIXELS:,} pixels of a picture that is decoded"
        )


def _check_padding(folder: PublishedFolder, settings: Any, size: int) -> None:  # noqa: ANN401
    """Refuses padding, unless it is to what every picture of a batch has already."""
    padded = settings.pad_size
    if settings.do_pad and padded is not None and (padded.height, padded.width) != (size, size):
        raise folder.unserved(
            f"its image processor pads pictures of {size} pixels to {shown(dict(padded))} "
            "(do_pad), which is not supported"
        )


def _side(folder: PublishedFolder, name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise folder.malformed(f"{name} is {shown(value)}, not a whole number of pixels")
    return value
