"""Opens a published model: a folder in the hub's layout, or a name that the hub gives.

The family is found by `model_type` in config.json, by the table below; models that read a
detector's regions are found by their files (region_families.py).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tandem.model_io.json_object import shown
from tandem.modeling.families.blip import read_blip
from tandem.modeling.families.blip2 import read_blip2
from tandem.modeling.families.clip import read_clip, read_metaclip_2
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.region_families import region_reader
from tandem.modeling.families.siglip import read_siglip
from tandem.modeling.families.vilt import read_vilt
from tandem.modeling.published.files import CONFIG, hub_snapshot

_FAMILIES: Final[Mapping[str, Callable[[PublishedFolder], PublishedModel]]] = {
    "blip": read_blip,
    "blip-2": read_blip2,
    "clip": read_clip,
    "metaclip_2": read_metaclip_2,
    "siglip": read_siglip,
    "vilt": read_vilt,
}
_NOT_SERVED: Final[Mapping[str, str]] = {
    "siglip2": "it is a SigLIP 2 of free resolution (NaFlex), whose image tower loops over "
    "pictures and cannot be exported; take one of fixed resolution, as "
    "google/siglip2-base-patch16-224",
}
_SMALL_FILES: Final = ("*.json", "vocab.txt", "README.md")
_WEIGHTS: Final = ("model.safetensors", "model-*.safetensors")
_PICKLES: Final = ("pytorch_model.bin", "pytorch_model-*.bin")


def read_published_model(folder: Path) -> PublishedModel:
    """Returns the model of a folder; writes nothing.

    Raises PublishedCheckpointInvalid, naming the file and what can be done, for a model of an
    unknown family, one that wants code of its own, and any file that is missing, damaged, or of
    another model.
    """
    published = PublishedFolder(folder)
    if read := region_reader(published):
        return read(published)
    _check_transformers(published)
    config = published.config()
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _NOT_SERVED:
        raise published.refused(_NOT_SERVED[kind])
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise published.refused(
            f"{CONFIG} has model_type {shown(kind)}, which is no family that is served; there are "
            f"{', '.join(_FAMILIES)}"
        )
    return _FAMILIES[kind](published)


def published_model_folder(name_or_folder: str, revision: str | None = None) -> Path:
    """Returns the folder of that path, or that with the hub's files of that name.

    A revision is a commit, a tag or a branch. With HF_HUB_OFFLINE only files that were downloaded
    before are used. Raises PublishedCheckpointInvalid where neither is there.
    """
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    # The small files say which weights are needed: a repository may have several formats.
    folder = hub_snapshot(name_or_folder, _SMALL_FILES, revision)
    folder = hub_snapshot(name_or_folder, (*_SMALL_FILES, *_WEIGHTS), revision)
    if not any(folder.glob("model*.safetensors")):
        folder = hub_snapshot(name_or_folder, (*_SMALL_FILES, *_PICKLES), revision)
    return folder


def _check_transformers(folder: PublishedFolder) -> None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise folder.refused(
            "to read a published model transformers is needed: "
            "pip install 'tandem-search[pretrained]'"
        ) from error
