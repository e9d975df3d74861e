"""Writes a corpus's neighbours to one file, and reads them back.

The manifest is in the file's metadata, so that lists are never read with another model's.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tandem.lab.neighbours.lists.corpus_neighbours import (
    LISTS,
    CorpusNeighbours,
    NeighbourSource,
)
from tandem.platform.files.json_object import (
    FileInvalid,
    check_file,
    from_fields,
    object_of,
)
from tandem.platform.files.tensor_file import failures_named
from tandem.platform.files.whole_file import write_whole

FORMAT_VERSION: Final = 1
_MANIFEST: Final = "neighbours_manifest"
_IDS: Final = {"image_ids", "text_ids"}
_TENSORS: Final = ("images", "texts", "image_of_text", "image_pool_logits", "text_pool_logits")


@dataclass(frozen=True, slots=True)
class NeighbourManifest(NeighbourSource):
    """Describes a file of neighbours."""

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

    Raises FileInvalid naming the file if it is damaged or is something else.
    """
    manifest = read_manifest(path)
    names = [each.name for each in fields(NeighbourSource)]
    with safe_open(path, framework="np") as file:
        return CorpusNeighbours(
            NeighbourSource(**{name: getattr(manifest, name) for name in names}),
            **{name: json.loads(file.metadata()[name]) for name in _IDS},
            **{name: file.get_tensor(name) for name in _TENSORS},
            lists={name: file.get_tensor(name).astype(np.int64) for name in LISTS},
        )


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
            metadata = file.metadata() or {}
        if _MANIFEST not in metadata:
            raise ValueError("it has no manifest; tandem neighbours build writes such files")
        values = object_of(metadata[_MANIFEST], "its manifest")
        if values.get("format_version") != FORMAT_VERSION:
            raise ValueError(f"format {values.get('format_version')} instead of {FORMAT_VERSION}")
        return from_fields(NeighbourManifest, values)
    except (OSError, SafetensorError, ValueError) as error:
        raise FileInvalid(
            f"{path} is no whole file of neighbours ({error}); build it again"
        ) from error


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
