"""Reads the file that attaches tables or collections of another program as indexes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Self

from tandem.chassis.settings import SettingsError
from tandem.contract.filtering.attributes import name_fault
from tandem.contract.identifiers import check_index_id
from tandem.errors import IndexIdInvalid, IndexNotFound
from tandem.platform.files.json_object import from_fields, read_object
from tandem.platform.files.whole_file import write_text_whole
from tandem.stages.index_info import IndexInfo


@dataclass(frozen=True, slots=True)
class Checked(IndexInfo):
    """Names the model that `tandem attach` found to be the vectors' own."""

    mapping: str
    """A digest of the entry that was checked."""
    picture_count: int = 0
    """How many pictures were encoded again."""
    deviation: float = 0.0
    """How far the vectors of nine tenths of them are from the model's, at most (model_check)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Names what has an index's items, a row each, and in which columns."""

    table: str
    """A table or view of Postgres, or a collection of Milvus."""
    id: str
    vector: str
    picture: str
    """Has the key of an object in the store of pictures."""
    attributes: tuple[str, ...] = ()
    metric: Literal["cosine", "inner product"] = "cosine"
    """Of the engine's index; with the second, vectors must have unit length."""
    checked: Checked | None = None


@dataclass(frozen=True, slots=True)
class Attachments:
    """Holds the attached indexes, and the URL of the store that has their pictures."""

    pictures: str
    indexes: Mapping[str, Attachment]

    @classmethod
    def read(cls, path: Path, *, is_checked: bool = True) -> Self:
        """Reads the file; raises SettingsError for a fault, and for an index without its check."""
        try:
            read = from_fields(cls, read_object(path))
            for index_id, entry in read.indexes.items():
                check_index_id(index_id)
                for fault in filter(None, map(name_fault, entry.attributes)):
                    raise ValueError(f"{index_id}: {fault}")
                mapping = entry.checked.mapping if entry.checked else None
                if is_checked and mapping != read.mapping(index_id):
                    raise ValueError(
                        f"{index_id} was not checked as it stands there: run tandem attach, which "
                        "compares its vectors with the model's"
                    )
        except (ValueError, IndexIdInvalid) as error:
            raise SettingsError(f"the attached indexes of {path}: {error}") from error
        return read

    def write(self, path: Path, checks: Mapping[str, Checked]) -> None:
        """Replaces the file by one with these checks."""
        indexes = {name: replace(each, checked=checks[name]) for name, each in self.indexes.items()}
        said = asdict(replace(self, indexes=indexes))
        write_text_whole(path, json.dumps(said, indent=2) + "\n")

    def mapping(self, index_id: str) -> str:
        """Returns a digest of an index's entry without what the check found."""
        said = asdict(replace(self.indexes[index_id], checked=None))
        text = json.dumps([self.pictures, said], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def of(self, index_id: str) -> Attachment:
        """Returns an index's entry; raises IndexNotFound."""
        if (entry := self.indexes.get(index_id)) is None:
            raise IndexNotFound(index_id=index_id)
        return entry

    def info(self, index_id: str) -> Checked:
        """Returns an index's model; raises IndexNotFound."""
        checked = self.of(index_id).checked
        assert checked is not None, "a shard is opened over checked indexes"
        return checked
