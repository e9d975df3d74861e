"""Reads a published image processor, by the class of transformers that its file names.

Its settings become our rules, which are held to the class: pictures of several shapes must
become the pixels that it makes of them. A class with steps of its own is refused before it runs.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from tandem.files.json_object import shown, within
from tandem.modeling.published.folder import PublishedFolder
from tandem.pictures.image_rules import Fit

PROCESSOR_FILES: Final = ("processor_config.json", "preprocessor_config.json")
# Old names of the processors, and the two ways in which a newer one is implemented.
_SUFFIXES: Final = ("FeatureExtractor", "ImageProcessorFast", "ImageProcessorPil", "ImageProcessor")
_CONVNEXT: Final = "ConvNext"
# ConvNeXT's squashes pictures of this size and larger ones.
_CONVNEXT_SQUASHED_SIZE: Final = 384
# As the library and ours make room for them.
_MAX_SIDE: Final = 4_096

Sides = tuple[int, int]


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
    # This form of the class needs no torchvision. One with steps of its own may take any memory.
    kind = getattr(transformers, f"{stem}ImageProcessorPil", None)
    own_steps = (own.removesuffix("ImageProcessor"), _CONVNEXT)
    if kind is None or not (stem in own_steps or _is_plain(kind)):
        raise folder.unserved(f"its image processor is {shown(named)}, which is not served")
    settings = kind(**fields)
    for name in ("size", "crop_size", "pad_size"):
        for side in dict(getattr(settings, name) or {}).values():
            if side is not None:
                within(name, side, 1, _MAX_SIDE)
    return settings


def read_fit(settings: Any) -> tuple[Fit, Sides, int]:  # noqa: ANN401  of transformers
    """Returns the fit, what pictures are scaled to, and the side of the final square.

    They are scaled to a width and a height; for a crop both are the length of the shorter side.
    """
    size = settings.size
    if type(settings).__name__.startswith(_CONVNEXT):
        side = size.shortest_edge
        if side >= _CONVNEXT_SQUASHED_SIZE:
            return Fit.SQUASH, (side, side), side
        shorter = int(side / settings.crop_pct)
        within("size by crop_pct", shorter, side, _MAX_SIDE)
        return Fit.CROP, (shorter, shorter), side
    cut = settings.crop_size.height if settings.do_center_crop else None
    if size.shortest_edge:
        return Fit.CROP, (size.shortest_edge, size.shortest_edge), cut or size.shortest_edge
    return Fit.SQUASH, (size.width, size.height), cut or size.width


def _is_plain(kind: type[Any]) -> bool:
    """Returns whether a class has other settings than its base class, and the same steps."""
    from transformers.image_processing_backends import PilBackend

    added = kind.__mro__[: kind.__mro__.index(PilBackend)]
    return not any(
        inspect.isroutine(value) and name != "__init__"
        for each in added
        for name, value in vars(each).items()
    )


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
