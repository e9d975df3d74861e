"""WebDataset: tar archives in which files of one name are one record.

    cats/0001.jpg    the picture: .jpg, .jpeg, .png or .webp
    cats/0001.txt    captions, one a line
    cats/0001.json   {"caption": "…"} or {"captions": ["…", "…"]}, "language": "de"

The name ends at the first dot. Captions are taken from .txt where there is one; other files are
passed over. Which archive is of which split is told in `shards`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from tandem.corpus.caption_text import MAX_TEXT_BYTES, caption_lines, numbered_captions
from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    SplitUnknown,
)
from tandem.corpus.image_sources import PICTURE_SUFFIXES, NoImage, check_size
from tandem.corpus.plain_file import open_plain_file
from tandem.corpus.records import ImageSource, Record
from tandem.corpus.shards import ShardFile, shards_by_split
from tandem.corpus.tar_members import TarMember, tar_members

_SUFFIX: Final = ".tar"
# Without a name before the dot it is a hidden file, such as macOS's "._0001.jpg".
_MEMBER = re.compile(r"(?P<key>(?:.*/)?[^./][^./]*)(?P<extension>\.[^/]+)")
_KINDS: Final = dict.fromkeys(PICTURE_SUFFIXES, "picture") | {
    ".txt": ".txt file",
    ".json": ".json file",
}


@dataclass(frozen=True, slots=True)
class TarImage:
    """An image source that is a file in a tar archive, read from its place in it."""

    archive: Path
    member: TarMember

    def __str__(self) -> str:
        return f"{self.archive}: {self.member.name}"

    def read(self) -> bytes:
        """Returns the file's bytes.

        Raises PictureFileMissing where the archive is not there or has become shorter, and
        PictureTooLarge as files do.
        """
        check_size(str(self), self.member.size_bytes)
        try:
            with open_plain_file(self.archive) as file:
                return _read(file, self.member, str(self))
        except CorpusFileMissing as error:
            raise PictureFileMissing(f"{self} cannot be read: {error}") from error


def read_webdataset(path: Path, split: str, language: str = "en") -> Iterator[Record]:
    """Yields a split's records, archive by archive, in the order of their first files.

    Captions are in `language` where nothing says another. A record's id is its archive's name and
    its own: "train-000/cats/0001", because archives may number their records each from the same.

    Raises at the call CorpusFileMissing and SplitUnknown. An archive is gone through when its
    first record is due, which raises as tar_members does, and CorpusMalformed for two files of one
    kind and name, and for captions that cannot be read. Pictures are read when asked for.
    """
    shards = shards_by_split(path, _SUFFIX)
    if split not in shards:
        raise SplitUnknown(place=path, split=split, known=shards)
    return (record for shard in shards[split] for record in _records(shard, split, language))


def _records(shard: ShardFile, split: str, language: str) -> Iterator[Record]:
    samples = _samples(shard.path)
    with open_plain_file(shard.path) as file:
        for key, members in samples.items():
            record_id = f"{shard.name}/{key}"
            texts, its_language = _texts(file, shard.path, members)
            captions = numbered_captions(record_id, texts, its_language or language)
            image = _image(shard.path, key, members)
            yield Record(record_id, captions, split, record_id, image)


def _samples(archive: Path) -> dict[str, dict[str, TarMember]]:
    """Returns the archive's files by their names before the first dot and by their kinds."""
    samples: dict[str, dict[str, TarMember]] = defaultdict(dict)
    for member in tar_members(archive):
        match = _MEMBER.fullmatch(member.name)
        kind = _KINDS.get(match["extension"].lower()) if match else None
        if match is None or kind is None:
            continue
        members = samples[match["key"]]
        if kind in members:
            raise CorpusMalformed(
                f"{archive}: {member.name} is a second {kind} of {match['key']!r}; rename one"
            )
        members[kind] = member
    return samples


def _image(archive: Path, key: str, members: Mapping[str, TarMember]) -> ImageSource:
    if "picture" in members:
        return TarImage(archive, members["picture"])
    return NoImage(f"{archive}: {key}", f"no picture ({', '.join(PICTURE_SUFFIXES)})")


def _texts(
    file: BufferedReader, archive: Path, members: Mapping[str, TarMember]
) -> tuple[list[str], str | None]:
    """Returns the captions and their language, if it is told."""
    fields: dict[str, Any] = {}
    if member := members.get(".json file"):
        fields = _json(_text_bytes(file, archive, member), f"{archive}: {member.name}")
    found = fields.get("captions", fields.get("caption"))
    texts = found if isinstance(found, list) else [] if found is None else [found]
    language = fields.get("language")
    if not all(isinstance(text, str) for text in [*texts, "" if language is None else language]):
        raise CorpusMalformed(
            f"{archive}: {members['.json file'].name} has a caption or language that is no text; "
            "correct it"
        )
    if member := members.get(".txt file"):
        place = f"{archive}: {member.name}"
        texts = caption_lines(_text_bytes(file, archive, member), place)
    return texts, language


def _json(text_bytes: bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(text_bytes)
    except (ValueError, RecursionError) as error:
        raise CorpusMalformed(f"{place} is not JSON ({error}); pack the archive anew") from error
    if not isinstance(fields, dict):
        raise CorpusMalformed(f"{place} is no JSON object; pack the archive anew")
    return fields


def _text_bytes(file: BufferedReader, archive: Path, member: TarMember) -> bytes:
    place = f"{archive}: {member.name}"
    if member.size_bytes > MAX_TEXT_BYTES:
        raise CorpusMalformed(
            f"{place} has more than {MAX_TEXT_BYTES:,} bytes; is it one picture's captions?"
        )
    return _read(file, member, place)


def _read(file: BufferedReader, member: TarMember, place: str) -> bytes:
    try:
        file.seek(member.offset_bytes)
        member_bytes = file.read(member.size_bytes)
    except OSError as error:
        raise PictureFileMissing(f"{place} cannot be read: {error.strerror}") from error
    if len(member_bytes) < member.size_bytes:
        raise PictureFileMissing(f"{place} is cut short; the archive changed while it was read")
    return member_bytes
