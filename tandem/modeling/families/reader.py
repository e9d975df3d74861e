"""Opens a published model: a folder in the hub's layout, or a name that the hub gives.

The family is found by `model_type` in config.json, by the table below. modules.json and
open_clip_config.json are formats of their own; models that read a detector's regions are found by
their files (region_families.py).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tandem.modeling.families.blip import read_blip
from tandem.modeling.families.blip2 import read_blip2
from tandem.modeling.families.clip import read_clip, read_metaclip_2
from tandem.modeling.families.modules_file import NORMALIZE, read_library_modules
from tandem.modeling.families.open_clip.open_clip import read_open_clip
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.region_families import region_reader
from tandem.modeling.families.regions.visual_bert import read_visual_bert
from tandem.modeling.families.siglip import read_siglip
from tandem.modeling.families.text_tower import read_text_tower
from tandem.modeling.families.vilt import read_vilt
from tandem.modeling.published.files import (
    CONFIG,
    MODULES,
    OPEN_CLIP_CONFIG,
    WEIGHT_NAMES,
)
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import read_object, shown

_FAMILIES: Final[Mapping[str, Callable[[PublishedFolder], PublishedModel]]] = {
    "blip": read_blip,
    "blip-2": read_blip2,
    "clip": read_clip,
    "metaclip_2": read_metaclip_2,
    "siglip": read_siglip,
    "vilt": read_vilt,
    "visual_bert": read_visual_bert,
}
_NOT_SERVED: Final[Mapping[str, str]] = {
    "siglip2": "it is a SigLIP 2 of free resolution (NaFlex), whose image tower loops over "
    "pictures and cannot be exported; take one of fixed resolution, as "
    "google/siglip2-base-patch16-224",
}
# Of sentence-transformers before 5.4; newer ones write Transformer for it.
_WHOLE_MODEL: Final = "CLIPModel"


def read_published_model(
    folder: Path, image_folder: Path | None = None, *, makes_head: bool = False
) -> PublishedModel:
    """Returns the model of a folder; writes nothing.

    `image_folder` is for a text tower: the model whose image tower it shares a space with. With
    `makes_head` a model of regions without a head for pairs gets a random one, to be trained.
    Raises PublishedCheckpointInvalid, naming the file and what can be done, for a model of an
    unknown family, one that wants code of its own, and any file that is missing, damaged, or of
    another model.
    """
    published = PublishedFolder(folder, makes_head=makes_head)
    with published.reading("it cannot be read"):
        return _read(published, image_folder)


def _read(published: PublishedFolder, image_folder: Path | None) -> PublishedModel:
    if not published.has(OPEN_CLIP_CONFIG) and (read := region_reader(published)):
        return read(published)
    _check_transformers(published)
    if published.has(MODULES):
        first, *steps = read_library_modules(published)
        # A text tower's states are pooled; a whole model gives embeddings by itself.
        has_more = [each for each in steps if each.kind != NORMALIZE]
        if first.kind != _WHOLE_MODEL and (has_more or first.kind != "Transformer"):
            return _with_image_tower(published, image_folder)
        if has_more:
            raise published.unserved(
                f"{MODULES} has {shown(has_more[0].kind)} after a {_WHOLE_MODEL}; only {NORMALIZE} "
                "is served there"
            )
        published = published.inner(first.path)
    if image_folder is not None:
        raise published.refused("it has an image tower of its own; name no other with it")
    if _is_open_clip(published):
        return read_open_clip(published)
    return _by_model_type(published)


def _by_model_type(published: PublishedFolder) -> PublishedModel:
    kind = published.config().get("model_type")
    if isinstance(kind, str) and kind in _NOT_SERVED:
        raise published.refused(_NOT_SERVED[kind])
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise published.unserved(
            f"{CONFIG} has model_type {shown(kind)}, which is not a supported family; there are "
            f"{', '.join(_FAMILIES)}, models in open_clip's and in MMT-Retrieval's format, and "
            "those of a detector's regions that their weights tell: OSCAR, VinVL, UNITER, VILLA "
            "and M3P (docs/regions.md); an image network can "
            "be the --image-source of tandem train, and one that judges pairs a remote reranker "
            "(docs/remote-reranker.md)"
        )
    return _FAMILIES[kind](published)


def _is_open_clip(published: PublishedFolder) -> bool:
    """Returns whether the folder is only in open_clip's format: some have both formats."""
    if not published.has(OPEN_CLIP_CONFIG):
        return False
    is_other = published.has(CONFIG) and any(
        published.has(name) or published.has(f"{name}.index.json") for name in WEIGHT_NAMES
    )
    return not is_other


def _with_image_tower(published: PublishedFolder, image_folder: Path | None) -> PublishedModel:
    if image_folder is None:
        raise published.refused(
            "it is only a text tower; name the model whose image tower it was trained for, as its "
            "model card says: --image-encoder NAME_OR_FOLDER"
        )
    return read_text_tower(published, read_published_model(image_folder))


def is_published_folder(folder: Path) -> bool:
    """Returns whether a folder is a published model's, and no checkpoint of tandem train."""
    if any((folder / name).is_file() for name in (MODULES, OPEN_CLIP_CONFIG)):
        return True
    if (folder / CONFIG).is_file():
        # Ours has vocabulary_size; others' say vocab_size, there or in a part.
        return "vocabulary_size" not in read_object(folder / CONFIG)
    return region_reader(PublishedFolder(folder)) is not None


def _check_transformers(folder: PublishedFolder) -> None:
    try:
        from transformers.utils import logging
    except ImportError as error:
        raise folder.refused(
            "to read a published model transformers is needed: pip install 'tandem-search[models]'"
        ) from error
    # It warns of defaults that a configuration leaves open, and of losses; neither matters here.
    logging.set_verbosity_error()
