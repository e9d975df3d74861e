"""Writes a corpus's neighbours to one file, and reads them back.

The manifest is in the file's metadata, so that lists are never read with another model's.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tandem.files.json_object import (
    FileInvalid,
    check_file,
    from_fields,
    object_of,
    value_of,
)
from tandem.files.tensor_file import failures_named
from tandem.files.whole_file import write_whole
from tandem.finite import are_finite
from tandem.neighbours.corpus_neighbours import (
    LISTS,
    CorpusNeighbours,
    NeighbourSource,
    check_answered,
)
from tandem.neighbours.neighbour_lists import Indices, check_embeddings

FORMAT_VERSION: Final = 1
_MANIFEST: Final = "neighbours_manifest"
_IDS: Final = {"image_ids", "text_ids"}
_TENSORS: Final = ("images", "texts", "image_of_text", "image_pool_logits", "text_pool_logits")


@dataclass(frozen=True, slots=True)
class NeighbourManifest:
    """Describes a file of neighbours."""

    model_fingerprint: str
    """Of the model that embedded the corpus."""
    corpus: str
    split: str
    seed: int
    corpus_sha256: str
    """Digest of all ids, captions and pictures."""
    base: str
    """BE, or BE + CE with the size of its pools."""
    k: int
    """Entries of each list."""
    image_count: int
    text_count: int
    dimension: int
    """Of an embedding."""
    pool_size: int
    """Items of a query that the cross-encoder scored; 0 without one."""
    format_version: int = FORMAT_VERSION

    @classmethod
    def of(cls, neighbours: CorpusNeighbours) -> "NeighbourManifest":
        """Describes these neighbours."""
        return cls(
            **asdict(neighbours.source),
            base=neighbours.base,
            k=neighbours.depth,
            image_count=len(neighbours.images),
            text_count=len(neighbours.texts),
            dimension=neighbours.images.shape[1],
            pool_size=neighbours.pool_size,
        )


def save_neighbours(path: Path, neighbours: CorpusNeighbours) -> NeighbourManifest:
    """Writes the file atomically, and returns its manifest."""
    manifest = NeighbourManifest.of(neighbours)
    tensors = {name: getattr(neighbours, name) for name in _TENSORS}
    tensors |= {name: neighbours.lists[name].astype(np.int32) for name in LISTS}
    metadata = {_MANIFEST: json.dumps(asdict(manifest))}
    metadata |= {name: json.dumps(list(getattr(neighbours, name))) for name in _IDS}
    whole = {name: np.ascontiguousarray(each) for name, each in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with failures_named(path):
        write_whole(path, lambda fresh: save_file(whole, fresh, metadata))
    return manifest


def load_neighbours(path: Path) -> CorpusNeighbours:
    """Reads a file of save_neighbours.

    Raises FileInvalid naming the file if it is damaged, is something else, or has lists, embeddings
    or logits that are wrong.
    """
    metadata, tensors = _content(path)
    try:
        manifest = _manifest(metadata)
        missing = [name for name in (*_TENSORS, *LISTS) if name not in tensors]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        names = [each.name for each in fields(NeighbourSource)]
        neighbours = CorpusNeighbours(
            NeighbourSource(**{name: getattr(manifest, name) for name in names}),
            _ids(metadata, "image_ids"),
            _ids(metadata, "text_ids"),
            _floats("images", tensors["images"]),
            _floats("texts", tensors["texts"]),
            _integers("image_of_text", tensors["image_of_text"], 1),
            {name: _integers(name, tensors[name], 2) for name in LISTS},
            _floats("image_pool_logits", tensors["image_pool_logits"]),
            _floats("text_pool_logits", tensors["text_pool_logits"]),
        )
        _check(neighbours)
        if NeighbourManifest.of(neighbours) != manifest:
            raise ValueError("its manifest describes other lists")
    except (KeyError, TypeError, ValueError) as error:
        raise FileInvalid(f"{path} is not a whole file of neighbours: {error}") from error
    return neighbours


def check_replaceable(path: Path) -> None:
    """Raises ValueError for a file of another kind: a corpus, given in the place of --corpus."""
    if not path.is_file():
        return
    try:
        read_manifest(path)
    except FileInvalid as error:
        raise ValueError(
            f"{path} is there and is no file of neighbours: name another file to write, or remove "
            "this one; --corpus takes a corpus"
        ) from error


def read_manifest(path: Path) -> NeighbourManifest:
    """Reads only the manifest; raises FileInvalid naming the file."""
    check_file(path)
    try:
        with safe_open(path, framework="np") as file:
            return _manifest(file.metadata() or {})
    except (OSError, SafetensorError, ValueError) as error:
        raise FileInvalid(f"{path} is not a whole file of neighbours: {error}") from error


def check_same_base(
    name: object, found: NeighbourManifest, wanted: NeighbourManifest, whose: str
) -> None:
    """Raises ValueError if the lists of `name` are of another model or base than `whose`."""
    if found.model_fingerprint != wanted.model_fingerprint:
        raise ValueError(
            f"{name} has lists of the model {found.model_fingerprint[:12]}, and {whose} of "
            f"{wanted.model_fingerprint[:12]}: build both with one model"
        )
    if found.base != wanted.base:
        raise ValueError(
            f"{name} has lists over {found.base}, and {whose} over {wanted.base}: build both with "
            "one --rerank-k"
        )


def _content(path: Path) -> tuple[Mapping[str, str], dict[str, Any]]:
    check_file(path)
    try:
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
            return file.metadata() or {}, tensors
    except (OSError, SafetensorError) as error:
        raise FileInvalid(
            f"{path} is damaged or cut short, or no file of neighbours ({error}); build it again"
        ) from error


def _ids(metadata: Mapping[str, str], name: str) -> list[str]:
    ids = value_of(metadata[name], f"its {name}")
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise ValueError(f"its {name} are no list of texts")
    if len(set(ids)) != len(ids):
        raise ValueError(f"two of its {name} are equal")
    return ids


def _floats(name: str, numbers: NDArray[Any]) -> NDArray[Any]:
    if not np.issubdtype(numbers.dtype, np.floating) or numbers.ndim != 2:
        raise ValueError(f"{name} is {numbers.dtype} {list(numbers.shape)} and no matrix of floats")
    return numbers


def _integers(name: str, numbers: NDArray[Any], dimensions: int) -> Indices:
    """Returns int64; raises ValueError for numbers that a conversion would truncate silently."""
    if not np.issubdtype(numbers.dtype, np.integer) or numbers.ndim != dimensions:
        raise ValueError(f"{name} is {numbers.dtype} {list(numbers.shape)} and no integers")
    return numbers.astype(np.int64)


def _check(near: CorpusNeighbours) -> None:
    """Raises ValueError for lists, embeddings or logits that would be silently wrong."""
    check_embeddings(near.images)
    check_embeddings(near.texts)
    if near.images.shape[1] != near.texts.shape[1]:
        widths = f"{near.images.shape[1]} and {near.texts.shape[1]}"
        raise ValueError(f"embeddings of images and texts have {widths} dimensions")
    counts = {"image": len(near.images), "text": len(near.texts)}
    _check_items("image_of_text", near.image_of_text[:, None], counts["text"], counts["image"])
    check_answered(near.image_ids, near.image_of_text)
    for name in LISTS:
        items, _, query = name.partition("s_of_")
        _check_items(name, near.lists[name], counts[query], counts[items])
    for name, count in counts.items():
        if len(getattr(near, f"{name}_ids")) != count:
            raise ValueError(f"{count} {name}s have {len(getattr(near, f'{name}_ids'))} ids")
        logits = getattr(near, f"{name}_pool_logits")
        if logits.shape != (count, near.pool_size) or near.pool_size > near.depth:
            raise ValueError(f"pools of {count} {name}s have logits of shape {logits.shape}")
        if not are_finite(logits):
            row = int(np.argwhere(~np.isfinite(logits))[0, 0])
            raise ValueError(f"a match logit of {name}s, in row {row}, is NaN or infinite")


def _check_items(name: str, list_QK: Indices, query_count: int, item_count: int) -> None:
    if len(list_QK) != query_count or not list_QK.shape[1]:
        raise ValueError(f"{name} has the shape {list_QK.shape}, not {query_count} rows")
    ordered_QK = np.sort(list_QK, axis=1)
    is_strange_Q = (ordered_QK[:, 0] < 0) | (ordered_QK[:, -1] >= item_count)
    if is_strange_Q.any():
        row = np.argmax(is_strange_Q)
        raise ValueError(f"{name} names, in row {row}, an item that does not exist")
    is_repeated_Q = (ordered_QK[:, 1:] == ordered_QK[:, :-1]).any(axis=1)
    if is_repeated_Q.any():
        raise ValueError(f"{name} has, in row {np.argmax(is_repeated_Q)}, an item twice")


def _manifest(metadata: Mapping[str, str]) -> NeighbourManifest:
    if _MANIFEST not in metadata:
        raise ValueError("it has no manifest; tandem neighbours build writes such files")
    values = object_of(metadata[_MANIFEST], "its manifest")
    if values.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"format {values.get('format_version')} instead of {FORMAT_VERSION}")
    return from_fields(NeighbourManifest, values)
