"""Reads a folder that MMT-Retrieval saved (Geigle et al. 2022), in sentence-transformers' layout.

    modules.json            a list of {idx, name, path, type}
    0_OSCAR, 0_M3P, …       the encoder, with sentence_bert_config.json for its two lengths
    1_ClassificationHead    class_head.pt, and sentence_bert_config.json for what it reads
    2_Pooling               config.json; only the mean is served

Head and pooling may be missing, as in a bi-encoder or a cross-encoder alone.
"""

from collections.abc import Callable, Mapping
from typing import Final

from torch import Tensor

from tandem.modeling.families.modules_file import read_modules
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.m3p import read_m3p
from tandem.modeling.families.regions.oscar import read_oscar
from tandem.modeling.families.regions.region_head import OfMmt
from tandem.modeling.families.regions.uniter import read_uniter
from tandem.modeling.published.files import MODULES
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import shown

_LENGTHS: Final = "sentence_bert_config.json"
_OWN_TYPES: Final = "mmt_retrieval."
_HEAD: Final = "class_head.pt"
_READ_BY_HEAD: Final = {"pooled_cls_token_embeddings": True, "cls_token_embeddings": False}
_MEAN: Final = "pooling_mode_mean_tokens"
_MEAN_ALONE: Final = {
    _MEAN: (True,),
    "pooling_mode_cls_token": (False,),
    "pooling_mode_max_tokens": (False,),
    "pooling_mode_mean_sqrt_len_tokens": (False,),
}


def is_mmt_folder(folder: PublishedFolder) -> bool:
    """Returns whether MMT saved the folder; sentence-transformers has the same layout."""
    return folder.has(MODULES) and any(
        each.class_name.startswith(_OWN_TYPES) for each in read_modules(folder)
    )


def read_mmt_folder(folder: PublishedFolder) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong."""
    places = {each.kind: each.path for each in read_modules(folder)}
    encoders = [kind for kind in places if kind in _FAMILIES]
    if len(encoders) != 1 or places.keys() - {*_FAMILIES, *_AROUND}:
        raise folder.unserved(
            f"{MODULES} has {shown(list(places))}; one of {', '.join(_FAMILIES)} is wanted, with "
            f"{' and '.join(_AROUND)} at most"
        )
    if "Pooling" in places:
        pooling = folder.inner(places["Pooling"])
        pooling.check_served({_MEAN: False} | pooling.config(), _MEAN_ALONE)
    head, reads_pooled = _head(folder, places.get("ClassificationHead"))
    inner = folder.inner(places[encoders[0]])
    fields = inner.optional_fields(_LENGTHS)
    lengths = [_length(fields.get(name)) for name in ("max_seq_length", "max_image_seq_len")]
    return _FAMILIES[encoders[0]](inner, OfMmt(head, reads_pooled, *lengths))


_FAMILIES: Final[dict[str, Callable[[PublishedFolder, OfMmt], PublishedModel]]] = {
    "OSCAR": read_oscar,
    "M3P": read_m3p,
    "UNITER": read_uniter,
}
_AROUND: Final = ("ClassificationHead", "Pooling")


def _head(folder: PublishedFolder, place: str | None) -> tuple[Mapping[str, Tensor], bool]:
    """Returns the weights of the head, none without one, and whether it reads a pooled position."""
    if place is None:
        return {}, False
    folder = folder.inner(place)
    fields = folder.fields(_LENGTHS)
    read = fields.get("input_key", "cls_token_embeddings")
    folder.check_served({"input_key": read}, {"input_key": tuple(_READ_BY_HEAD)})
    return folder.read_weights([_HEAD]), _READ_BY_HEAD[read]


def _length(field: object) -> int | None:
    return field if type(field) is int and field > 0 else None
