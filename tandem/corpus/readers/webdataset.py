"""Reads WebDataset: tar archives in which files of one name are one record.

    cats/0001.jpg    the picture: .jpg, .jpeg, .png or .webp
    cats/0001.txt    captions, one per line
    cats/0001.json   {"captions": ["…", "…"]} or {"caption": "…"}, "language": "de"

tar_samples.py groups files into records. Captions come from .txt if there is one, else from the
first of the .json's two fields that has any; other files are skipped and counted. shards.py
determines the split of an archive.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from tandem.corpus.errors import (
    ArchiveUnsafe,
    CorpusError,
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    SplitUnknown,
)
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.caption_text import (
    caption_field,
    caption_lines,
    check_text_bytes,
    language_field,
    numbered_captions,
)
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES, NoImage, check_size, file_state
from tandem.corpus.readers.plain_file import files_below, open_plain_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.shards import (
    ShardFile,
    check_one_configuration,
    report_missing_parts,
    shards_by_split,
    split_of,
)
from tandem.corpus.readers.splits import split_named
from tandem.corpus.readers.tar_members import TarMember, tar_members
from tandem.corpus.readers.tar_samples import JSON, PICTURE, TEXT, Name, Sample, tar_samples
from tandem.corpus.records import Caption, FileState, ImageSource, Record, record_id_of

_SUFFIX: Final = ".tar"
_COMPRESSED: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


@dataclass(frozen=True, slots=True)
class TarImage(ImageSource):
    """Reads a picture from its position in a tar archive."""

    archive: Path
    member: TarMember

    def __str__(self) -> str:
        return f"{self.archive}: {self.member.name}"

    def read(self) -> bytes:
        """Returns the file's bytes.

        Raises PictureFileMissing if the archive is missing or was shortened, and PictureTooLarge
        over MAX_READ_BYTES.
        """
        check_size(str(self), self.member.size_bytes)
        try:
            with open_plain_file(self.archive) as file:
                return _read(file, self.member, str(self))
        except CorpusFileMissing as error:
            raise PictureFileMissing(f"{self} cannot be read: {error}") from error

    def stat(self) -> FileState | None:
        """Returns the archive's state."""
        return file_state(self.archive)


def read_webdataset(
    path: Path, split: str, language: str = "en", left_out: LeftOut | None = None
) -> RecordStream:
    """Returns a split's records, archive by archive, in the order of their first files.

    Captions are in `language` unless a field gives another. A record's id is its archive's name and
    its own, "train-000/cats/0001", because archives may each number records from the same start;
    "train-000+1/cats/0001" in an appended archive, if the first has that name too.

    Raises CorpusFileMissing, SplitUnknown, and CorpusMalformed for a compressed archive or several
    configurations at the call. An archive is scanned before its first record, and rejected as by
    tar_members, and its records as by tar_samples. Captions that are not UTF-8, JSON or texts
    become their record's `captions_fault`. Pictures are read on demand.
    """
    left_out = LeftOut() if left_out is None else left_out
    _check_uncompressed(path, split, left_out)
    shards = shards_by_split(path, (_SUFFIX,), left_out)
    name = split_named(split, shards, path, left_out)
    chosen = shards[name]
    check_one_configuration(chosen, name)
    report_missing_parts(chosen, left_out)
    records = (each for shard in chosen for each in _records(shard, split, language, left_out))
    return RecordStream(records, path, left_out)


def _check_uncompressed(path: Path, split: str, left_out: LeftOut) -> None:
    """Rejects the split's compressed archives."""
    splits: dict[str, list[Path]] = defaultdict(list)
    root = path.parent if path.is_file() else path
    files = [path] if path.is_file() else files_below(path, path, LeftOut())
    for file in files if path.exists() else ():
        suffix = next((each for each in _COMPRESSED if file.name.lower().endswith(each)), None)
        if suffix:
            below = file.relative_to(root)
            splits[split_of(below.with_name(below.name[: -len(suffix)] + _SUFFIX))].append(file)
    with suppress(SplitUnknown):
        for file in splits[split_named(split, splits, path)]:
            value = CorpusMalformed(
                f"{file} is compressed; unpack it to {_SUFFIX} (gunzip, unxz …): pictures are read "
                "from their place in it"
            )
            left_out.refuse(value, FileFault.COMPRESSED)


def _records(shard: ShardFile, split: str, language: str, left_out: LeftOut) -> Iterator[Record]:
    samples = _samples(shard, left_out)
    with open_plain_file(shard.path, shard.root) as file:
        for (part, key), members in samples.items():
            record_id = record_id_of(
                f"{shard.name}+{part}/{key}" if part else f"{shard.name}/{key}"
            )
            captions: tuple[Caption, ...] = ()
            fault = None
            try:
                texts, its_language = _texts(file, shard.path, members)
                captions = numbered_captions(record_id, texts, its_language or language)
            except CorpusMalformed as error:
                fault = str(error)
            image: ImageSource = NoImage(
                f"{shard.path}: {key}", f"no picture ({', '.join(PICTURE_SUFFIXES)})"
            )
            if PICTURE in members:
                image = TarImage(shard.path, members[PICTURE])
            yield Record(record_id, captions, split, record_id, image, captions_fault=fault)


def _samples(shard: ShardFile, left_out: LeftOut) -> dict[Name, Sample]:
    """Returns the archive's records; if it is cut short, those before the cut."""
    members: list[TarMember] = []
    try:
        for member in tar_members(shard.path, shard.root):
            members.append(member)  # noqa: PERF402 - those before a fault are kept
    except ArchiveUnsafe as error:
        left_out.refuse(error, FileFault.DAMAGED)
        members = []
    except CorpusError as error:
        left_out.refuse(error, FileFault.DAMAGED)
    return tar_samples(iter(members), shard.path, left_out)


def _texts(file: BufferedReader, archive: Path, members: Sample) -> tuple[list[str], str | None]:
    """Returns the captions, and their language if it is given."""
    text, json_file = members.get(TEXT), members.get(JSON)
    fields: dict[str, Any] = {}
    place = str(archive)
    if json_file:
        place = f"{archive}: {json_file.name}"
        value = _json(_text_bytes(file, archive, json_file), place)
        if isinstance(value, dict):
            fields = value
        elif not text:
            raise CorpusMalformed(f"{place} is not a JSON object; pack the archive again")
    language = language_field(fields, place)
    if text:
        text_bytes = _text_bytes(file, archive, text)
        return caption_lines(text_bytes, f"{archive}: {text.name}"), language
    return caption_field(fields, place), language


def _json(text_bytes: bytes, place: str) -> object:
    try:
        return json.loads(text_bytes)
    except (ValueError, RecursionError) as error:
        raise CorpusMalformed(f"{place} is not JSON ({error}); pack the archive again") from error


def _text_bytes(file: BufferedReader, archive: Path, member: TarMember) -> bytes:
    place = f"{archive}: {member.name}"
    check_text_bytes(member.size_bytes, place)
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
