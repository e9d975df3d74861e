"""WebDataset: tar archives in which files of one name are one record.

    cats/0001.jpg    the picture: .jpg, .jpeg, .png or .webp
    cats/0001.txt    captions, one a line
    cats/0001.json   {"captions": ["…", "…"]} or {"caption": "…"}, "language": "de"

The name ends at the first dot. Captions are taken from .txt where there is one, else from the first
of the .json's two fields that has any; other files are passed over. Which archive is of which split
is told in `shards`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from tandem.corpus.caption_text import (
    MAX_TEXT_BYTES,
    caption_field,
    caption_lines,
    language_field,
    numbered_captions,
)
from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    SplitUnknown,
)
from tandem.corpus.image_sources import PICTURE_SUFFIXES, NoImage, check_size
from tandem.corpus.plain_file import open_plain_file
from tandem.corpus.records import Caption, ImageSource, Record
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
    kind and name. Captions that are no UTF-8, no JSON or no texts are their record's
    `captions_fault`. Pictures are read when asked for.
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
            captions: tuple[Caption, ...] = ()
            fault = None
            try:
                texts, its_language = _texts(file, shard.path, members)
                captions = numbered_captions(record_id, texts, its_language or language)
            except CorpusMalformed as error:
                fault = str(error)
            image = _image(shard.path, key, members)
            yield Record(record_id, captions, split, record_id, image, captions_fault=fault)


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
    text, json_file = members.get(".txt file"), members.get(".json file")
    fields: dict[str, Any] = {}
    place = str(archive)
    if json_file:
        place = f"{archive}: {json_file.name}"
        told = _json(_text_bytes(file, archive, json_file), place)
        if isinstance(told, dict):
            fields = told
        elif not text:
            raise CorpusMalformed(f"{place} is no JSON object; pack the archive anew")
    language = language_field(fields, place)
    if text:
        text_bytes = _text_bytes(file, archive, text)
        return caption_lines(text_bytes, f"{archive}: {text.name}"), language
    return caption_field(fields, place), language


def _json(text_bytes: bytes, place: str) -> object:
    try:
        return json.loads(text_bytes)
    except (ValueError, RecursionError) as error:
        raise CorpusMalformed(f"{place} is not JSON ({error}); pack the archive anew") from error


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
