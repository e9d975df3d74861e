"""Reads a folder of pictures, each with its captions in a text file next to it.

    folder/cat.jpg  folder/cat.txt          any split, if there is nothing else
    folder/train/cat.jpg  …/cat.txt         split "train", and so for every other subfolder

A picture is a .jpg, .jpeg, .jpe, .jfif, .png, .webp, .heic, .heif or .avif; its text file has one
caption per line and is named cat.txt or cat.jpg.txt. One picture in several formats is one record,
of the file that most models read. A text file without a picture is a note. Notes and other files
are skipped and counted. If pictures lie in the folder itself and in subfolders, its own are split
"all". If no subfolder has the name of a split, each of "train", "val" and "test" is the whole
corpus with its subfolders, which split "*" always is.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from tandem.contract.filtering.attributes import Attributes, value_fault
from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, SplitUnknown
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.caption_text import MAX_TEXT_BYTES, caption_lines, numbered_captions
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES, ImageFile
from tandem.corpus.readers.plain_file import files_below, list_folder, open_plain_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import EVERY_SPLIT, WHOLE_SPLIT, is_well_known, split_named
from tandem.corpus.records import Caption, Record, record_id_of

_TEXT_SUFFIX: Final = ".txt"
_JPEG: Final = (".jpg", ".jpeg", ".jpe", ".jfif")
# How whole files of the formats begin and end that every model reads.
_WHOLE: Final = ((b"\xff\xd8\xff", b"\xff\xd9"), (b"\x89PNG", b"IEND"), (b"RIFF", b""))
_TAIL_BYTES: Final = 64
_Pictured = dict[Path, tuple[Path, list[Path]]]
"""Pictures and their texts, by path without suffix."""


def read_picture_folder(
    folder: Path, split: str, language: str = "en", left_out: LeftOut | None = None
) -> RecordStream:
    """Returns a split's records by the order of their names; every caption is in `language`.

    A record's id is its picture's path from `folder` without the suffix, "train/cat", in NFC, cut
    if no item can have it (record_id_of); its attribute `file` is the whole path. A picture without
    a text file, or with an empty one, is a record without captions. `left_out` counts what is not
    read.

    The split is listed at the call, which raises CorpusFileMissing for a folder that is missing or
    cannot be listed, SplitUnknown for a split without a picture, and CorpusMalformed for "all" if
    pictures lie in the folder itself and in a subfolder of that name. A text file that cannot be
    read, is not UTF-8 or is a link out of the folder becomes its record's `captions_fault`. A
    missing picture is found when it is read.
    """
    left_out = LeftOut() if left_out is None else left_out
    if not folder.is_dir():
        raise CorpusFileMissing(f"no folder {folder}; give the folder that the pictures lie in")
    unreported = LeftOut(excluded=left_out.excluded)
    own, folders = list_folder(folder, folder, unreported)
    splits = _pictured(folders, folder, unreported)
    has_own = any(map(is_picture, own))
    # An empty folder of that name, or a link out of the corpus, must not fall back to another.
    entry = folder / split
    has_entry = entry.name == split and (entry.is_symlink() or entry.is_dir())
    is_whole = split == EVERY_SPLIT or (not has_entry and _is_whole(split, splits, has_own))
    if is_whole:
        files = list(files_below(folder, folder, left_out))
        if split not in (EVERY_SPLIT, WHOLE_SPLIT):
            _check_undivided_below(folder, files, split)
    else:
        known = [*([WHOLE_SPLIT] if has_own else []), *splits]
        try:
            chosen = split_named(split, known, folder, left_out)
        except SplitUnknown as error:
            raise SplitUnknown(
                place=folder, split=split, known=known, left_out=_unread_files(folder, known)
            ) from error
        if has_own and chosen == WHOLE_SPLIT and WHOLE_SPLIT in splits:
            raise CorpusMalformed(
                f"{folder} has pictures in itself and in its subfolder {WHOLE_SPLIT!r}, which are "
                "two splits of one name; rename the subfolder"
            )
        if chosen in splits:
            files = list(files_below(folder / chosen, folder, left_out))
        else:
            files, _ = list_folder(folder, folder, left_out)
        for name in splits:
            if chosen not in splits or not (name == chosen or is_well_known(name)):
                left_out.pass_over(folder / name, FileFault.SUBFOLDER)
    pictured = _pictured_files(folder, files, left_out)
    split = WHOLE_SPLIT if split == EVERY_SPLIT else split
    records = _records(folder, pictured, split, language)
    return RecordStream(records, folder, left_out, len(pictured), is_undivided=is_whole)


def is_picture(path: Path) -> bool:
    """Returns whether a file's name is that of a picture in a known format."""
    return path.suffix.lower() in PICTURE_SUFFIXES


def _is_whole(split: str, splits: Iterable[str], has_own: bool) -> bool:
    """Returns whether the split is all pictures, wherever they lie."""
    names = set(splits)
    if not names:
        return has_own
    is_divided = any(is_well_known(name) or name == WHOLE_SPLIT for name in names)
    if is_divided or split in names:
        return False
    return is_well_known(split) or (split == WHOLE_SPLIT and not has_own)


def _check_undivided_below(folder: Path, files: Iterable[Path], split: str) -> None:
    """Raises SplitUnknown if a folder further down has splits, which would be merged."""
    for path in filter(is_picture, files):
        for parent in path.parents[: len(path.parents) - len(folder.parents) - 1]:
            if is_well_known(parent.name):
                why = f"{parent.parent} has {parent.name}/: give that folder"
                raise SplitUnknown(place=folder, split=split, known=[WHOLE_SPLIT], left_out=why)


def _pictured(folders: Iterable[Path], root: Path, unreported: LeftOut) -> list[str]:
    """Returns the names of the folders that contain a picture."""
    return [
        child.name for child in folders if any(map(is_picture, _below(child, root, unreported)))
    ]


def _below(folder: Path, root: Path, unreported: LeftOut) -> Iterator[Path]:
    with suppress(CorpusFileMissing):
        yield from files_below(folder, root, unreported)


def _unread_files(folder: Path, known: list[str]) -> str:
    """Returns a report of unread files, for the message that there is no picture."""
    others = LeftOut()
    for path in files_below(folder, folder, others):
        if not is_picture(path) and not _is_text(path):
            others.pass_over(path)
    read = "" if known else f"pictures are {', '.join(PICTURE_SUFFIXES)}"
    return others.summary() or read


def _records(folder: Path, pictured: _Pictured, split: str, language: str) -> Iterator[Record]:
    for stem, (picture, texts) in sorted(pictured.items()):
        name = str(stem.relative_to(folder))
        record_id = record_id_of(name)
        captions: tuple[Caption, ...] = ()
        fault = None
        try:
            lines = [line for text in texts for line in _lines(text, folder)]
            captions = numbered_captions(record_id, lines, language)
        except (CorpusFileMissing, CorpusMalformed) as error:
            fault = str(error)
        file = str(picture.relative_to(folder))
        attributes: Attributes = {"file": file} if value_fault("file", file) is None else {}
        image = ImageFile(picture, f"{folder}: {name}", folder)
        yield Record(record_id, captions, split, record_id, image, attributes, fault)


def _lines(path: Path, root: Path) -> list[str]:
    """Returns a text file's captions; reads at most a byte more than the limit."""
    with open_plain_file(path, root) as file:
        try:
            text_bytes = file.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise CorpusMalformed(f"{path} cannot be read: {error.strerror}") from error
    return caption_lines(text_bytes, str(path))


def _pictured_files(folder: Path, paths: Iterable[Path], left_out: LeftOut) -> _Pictured:
    """Groups pictures and texts by path without suffix, in NFC, and counts other files."""
    pictures: dict[Path, list[Path]] = defaultdict(list)
    texts: list[Path] = []

    @cache
    def stem_of(path: Path) -> Path:
        # macOS and Linux spell accents in two ways, and archives mix them.
        below = path.relative_to(folder).with_suffix("")
        return folder / unicodedata.normalize("NFC", str(below))

    for path in paths:
        if is_picture(path):
            pictures[stem_of(path)].append(path)
        elif _is_text(path):
            texts.append(path)
        else:
            left_out.pass_over(path)
    pictured: _Pictured = {}
    stems: dict[Path, Path] = {}
    for alike in _one_picture_each(pictures):
        # Not of one alone, which would be opened for it.
        first, *others = sorted(alike, key=partial(_rank, folder)) if len(alike) > 1 else alike
        pictured[stem_of(first)] = first, []
        stems |= dict.fromkeys((_any_case(stem_of(each)) for each in alike), stem_of(first))
        for each in others:
            left_out.pass_over(each, FileFault.OTHER_FORMAT)
    for path in sorted(texts):
        stem = stem_of(path)
        # cat.jpg.txt is of cat.jpg, unless there is a picture cat.jpg.png.
        of_name = [stem, stem_of(stem)] if is_picture(stem) else [stem]
        owners = [stems.get(_any_case(each), each) for each in of_name]
        owner = next((each for each in (*of_name, *owners) if each in pictured), None)
        if owner is None:
            left_out.pass_over(path, FileFault.NOTE)
        else:
            pictured[owner][1].append(path)
    return pictured


def _one_picture_each(pictures: dict[Path, list[Path]]) -> Iterator[list[Path]]:
    """Yields the files of each picture: of one name, or in case alone another but not the format.

    Windows and macOS hold cat.png to belong to CAT.JPG; cat.jpg and CAT.JPG are two pictures.
    """
    of_name: dict[Path, list[list[Path]]] = defaultdict(list)
    for stem, paths in pictures.items():
        of_name[_any_case(stem)].append(paths)
    for groups in of_name.values():
        formats = [{_format(path) for path in paths} for paths in groups]
        if sum(map(len, formats)) == len(set().union(*formats)):
            yield [path for paths in groups for path in paths]
        else:
            yield from groups


def _any_case(stem: Path) -> Path:
    return stem.with_name(stem.name.lower())


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    return _JPEG[0] if suffix in _JPEG else suffix


def _rank(root: Path, path: Path) -> tuple[int, int, Path]:
    """Returns what sorts first for the file of a picture that can most likely be read."""
    try:
        with open_plain_file(path, root) as file:
            head = file.read(_TAIL_BYTES)
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            tail = file.read()
    except (CorpusFileMissing, OSError):
        head = tail = b""
    ends = [end in tail for start, end in _WHOLE if head.startswith(start)]
    # What lacks its end may have more behind it. HEIC and AVIF need a setting.
    rank = 0 if any(ends) else 1 if ends else 2 if head[4:8] == b"ftyp" else 3
    return rank, PICTURE_SUFFIXES.index(path.suffix.lower()), path


def _is_text(path: Path) -> bool:
    return path.suffix.lower() == _TEXT_SUFFIX
