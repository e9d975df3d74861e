"""Reads a folder that MMT-Retrieval saved (Geigle et al. 2022), in sentence-transformers' layout.

    modules.json            a list of {idx, name, path, type}
    0_OSCAR, 0_M3P, …       the encoder, with sentence_bert_config.json for its two lengths
    1_ClassificationHead    class_head.pt, and sentence_bert_config.json for what it reads
    2_Pooling               config.json; only the mean is served

Head and pooling may be missing, as in a bi-encoder or a cross-encoder alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tandem.model_io.json_object import shown
from tandem.modeling.export.export_manifest import text_length_buckets
from tandem.modeling.families.m3p import read_m3p
from tandem.modeling.families.modules_file import MODULES, read_modules
from tandem.modeling.families.oscar import read_oscar
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.region_head import OuterHead
from tandem.modeling.families.uniter import read_uniter

_LENGTHS: Final = "sentence_bert_config.json"
_OWN_TYPES: Final = "mmt_retrieval."
_HEAD: Final = "class_head.pt"
_READ_BY_HEAD: Final = {"pooled_cls_token_embeddings": True, "cls_token_embeddings": False}
_MEAN: Final = "pooling_mode_mean_tokens"
_OTHER_POOLING: Final = (
    "pooling_mode_cls_token",
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
)
# MMT counts a text's tokens without the two special ones, and its encoders take at most 510.
_SPECIAL_COUNT, _MAX_LENGTH = 2, 510


def is_mmt_folder(folder: PublishedFolder) -> bool:
    """Returns whether MMT saved the folder; sentence-transformers has the same layout."""
    return folder.has(MODULES) and any(
        each.class_name.startswith(_OWN_TYPES) for each in read_modules(folder)
    )


def read_mmt_folder(folder: PublishedFolder) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong."""
    places = _places(folder)
    encoders = [kind for kind in places if kind in _FAMILIES]
    if len(encoders) != 1 or (odd := sorted(places.keys() - {*_FAMILIES, *_AROUND})):
        named = encoders if len(encoders) != 1 else odd
        raise folder.unserved(
            f"{MODULES} has {shown(named)}; one of {', '.join(_FAMILIES)} is wanted, with "
            f"{' and '.join(_AROUND)} at most"
        )
    if "Pooling" in places:
        _check_pooling(folder.inner(places["Pooling"]))
    head = places.get("ClassificationHead")
    outer = _outer_head(folder.inner(head)) if head else None
    place = places[encoders[0]]
    inner = PublishedFolder(folder.path / place)
    model = _with_lengths(inner, _FAMILIES[encoders[0]](inner, outer))
    own = {f"{place}/{name}": digest for name, digest in model.files_sha256.items()}
    return replace(model, files_sha256=own | dict(folder.sha256s()))


def _m3p_of_mmt(folder: PublishedFolder, outer: OuterHead | None) -> PublishedModel:
    return read_m3p(folder, outer, is_of_mmt=True)


_FAMILIES: Final[dict[str, Callable[[PublishedFolder, OuterHead | None], PublishedModel]]] = {
    "OSCAR": read_oscar,
    "M3P": _m3p_of_mmt,
    "UNITER": read_uniter,
}
_AROUND: Final = ("ClassificationHead", "Pooling")


def _places(folder: PublishedFolder) -> dict[str, str]:
    """Returns the path of each module by its kind."""
    places = {each.kind: each.path for each in read_modules(folder)}
    for place in places.values():
        if place in ("", ".", "..") or any(each in place for each in "\0/\\"):
            raise folder.malformed(f"{MODULES} names {shown(place)}, no folder next to it")
    return places


def _outer_head(folder: PublishedFolder) -> OuterHead:
    fields = folder.fields(_LENGTHS)
    read = fields.get("input_key", "cls_token_embeddings")
    if not isinstance(read, str) or read not in _READ_BY_HEAD:
        raise folder.unserved(
            f"its head reads {shown(read)}; only {' and '.join(_READ_BY_HEAD)} are known"
        )
    return OuterHead(folder.read_weights([_HEAD]), _READ_BY_HEAD[read])


def _check_pooling(folder: PublishedFolder) -> None:
    fields = folder.config()
    if not fields.get(_MEAN) or any(fields.get(name) for name in _OTHER_POOLING):
        raise folder.unserved("its pooling is not the plain mean of all positions")


def _with_lengths(folder: PublishedFolder, model: PublishedModel) -> PublishedModel:
    """Returns the model with the folder's own limits of tokens and regions."""
    fields, parts = folder.optional_fields(_LENGTHS), model.region_joint
    assert parts is not None, "all three families are joint"
    numbers = [fields.get(name) for name in ("max_seq_length", "max_image_seq_len")]
    text_length, region_count = (
        each if type(each) is int and each > 0 else None for each in numbers
    )
    text, regions = parts.text, parts.regions
    if text_length is not None:
        max_tokens = min(text_length, _MAX_LENGTH) + _SPECIAL_COUNT
        text = replace(text, max_tokens=max_tokens, lengths=text_length_buckets(max_tokens))
    if region_count is not None:
        regions = replace(regions, max_regions=min(region_count, _MAX_LENGTH))
    if text.max_tokens + regions.max_regions > _MAX_LENGTH:
        raise folder.malformed(
            f"{_LENGTHS} allows {text.max_tokens} tokens and {regions.max_regions} regions, and "
            f"together at most {_MAX_LENGTH} have positions"
        )
    return replace(model, region_joint=replace(parts, text=text, regions=regions))
