"""Reads a folder of pictures, each with its captions in a text file next to it.

    folder/cat.jpg  folder/cat.txt          any split, if there is nothing else
    folder/train/cat.jpg  …/cat.txt         split "train", and so for every other subfolder

A picture is a .jpg, .jpeg, .jpe, .jfif, .png, .webp, .heic, .heif or .avif; its text file has one
caption per line and is named cat.txt or cat.jpg.txt. A text file without a picture is a record
whose picture is missing. Other files are skipped and counted. If pictures lie in the folder itself
and in subfolders, its own are split "all". If no subfolder has the name of a split, each of
"train", "val" and "test" is the whole corpus with its subfolders.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tandem.contract.filtering.attributes import Attributes, value_fault
from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, SplitUnknown
from tandem.corpus.left_out import FileFault, LeftOut, extension_of
from tandem.corpus.readers.caption_text import MAX_TEXT_BYTES, caption_lines, numbered_captions
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES, ImageFile, NoImage
from tandem.corpus.readers.plain_file import files_below, list_folder, open_plain_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import WHOLE_SPLIT, is_well_known, split_named
from tandem.corpus.records import Caption, ImageSource, Record

_TEXT_SUFFIX: Final = ".txt"
_Stems = dict[Path, list[Path]]


def read_picture_folder(
    folder: Path, split: str, language: str = "en", left_out: LeftOut | None = None
) -> RecordStream:
    """Returns a split's records by the order of their names; every caption is in `language`.

    A record's id is its picture's path from `folder` without the suffix, "train/cat", in NFC; its
    attribute `file` is the whole path. A picture without a text file, or with an empty one, is a
    record without captions. `left_out` counts what is not read.

    The split is listed at the call, which raises CorpusFileMissing for a folder that is missing or
    cannot be listed, SplitUnknown for a split without a picture, and CorpusMalformed for "all" if
    pictures lie in the folder itself and in a subfolder of that name. A record with two pictures is
    rejected. A text file that cannot be read, is not UTF-8 or is a link out of the folder becomes
    its record's `captions_fault`. A missing picture is found when it is read.
    """
    left_out = LeftOut() if left_out is None else left_out
    if not folder.is_dir():
        raise CorpusFileMissing(f"no folder {folder}; give the folder that the pictures lie in")
    own, folders = list_folder(folder, folder)
    splits = _pictured(folders, folder)
    has_own = any(map(is_picture, own))
    # An empty folder of that name, or a link out of the corpus, must not fall back to another.
    entry = folder / split
    has_entry = entry.name == split and (entry.is_symlink() or entry.is_dir())
    is_whole = not has_entry and _is_whole(split, splits, has_own)
    if is_whole:
        files = list(files_below(folder, folder, left_out))
        if split != WHOLE_SPLIT:
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
                left_out.pass_over(folder / name, FileFault.SUBFOLDER)
    stems = _grouped(folder, files, left_out)
    records = _records(folder, stems, split, language, left_out)
    return RecordStream(records, folder, left_out, len(stems), is_undivided=is_whole)


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


def _pictured(folders: Iterable[Path], root: Path) -> list[str]:
    """Returns the names of the folders that contain a picture."""
    return [child.name for child in folders if any(map(is_picture, _below(child, root)))]


def _below(folder: Path, root: Path) -> Iterator[Path]:
    with suppress(CorpusFileMissing):
        yield from files_below(folder, root, LeftOut())


def _unread_files(folder: Path, known: list[str]) -> str:
    """Returns a report of unread files, for the message that there is no picture."""
    others = LeftOut()
    for path in files_below(folder, folder, others):
        if not is_picture(path) and not _is_text(path):
            others.pass_over(path)
    read = "" if known else f"pictures are {', '.join(PICTURE_SUFFIXES)}"
    return others.summary() or read


def _records(
    folder: Path, stems: _Stems, split: str, language: str, left_out: LeftOut
) -> Iterator[Record]:
    for stem, paths in sorted(stems.items()):
        record_id = str(stem.relative_to(folder))
        try:
            text = _only([path for path in paths if _is_text(path)], record_id, folder)
            picture = _only(list(filter(is_picture, paths)), record_id, folder)
        except CorpusMalformed as error:
            left_out.refuse(error)
            continue
        captions: tuple[Caption, ...] = ()
        fault = None
        try:
            lines = caption_lines(_head(text, folder), str(text)) if text else []
            captions = numbered_captions(record_id, lines, language)
        except (CorpusFileMissing, CorpusMalformed) as error:
            fault = str(error)
        image: ImageSource = NoImage(str(text), _no_picture(paths))
        attributes: Attributes = {}
        if picture:
            image = ImageFile(picture, f"{folder}: {record_id}", folder)
            file = str(picture.relative_to(folder))
            attributes = {"file": file} if value_fault("file", file) is None else {}
        yield Record(record_id, captions, split, record_id, image, attributes, fault)


def _no_picture(paths: Iterable[Path]) -> str:
    wanted = f"no picture next to it ({', '.join(PICTURE_SUFFIXES)})"
    others = [path.name for path in paths if not _is_text(path)]
    return f"{wanted} but {' and '.join(others)}, which is not read" if others else wanted


def _only(paths: list[Path], record_id: str, folder: Path) -> Path | None:
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise CorpusMalformed(f"{folder}: {names} are both {record_id!r}; rename one of them")
    return paths[0] if paths else None


def _head(path: Path, root: Path) -> bytes:
    """Returns the file's bytes, at most one more than the limit."""
    with open_plain_file(path, root) as file:
        try:
            return file.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise CorpusMalformed(f"{path} cannot be read: {error.strerror}") from error


def _grouped(folder: Path, paths: Iterable[Path], left_out: LeftOut) -> _Stems:
    """Groups pictures and texts by path without suffix, in NFC, and counts other files.

    A text without a picture also gets the files of other formats with its name, for messages.
    """
    stems: _Stems = defaultdict(list)
    others: _Stems = defaultdict(list)

    def stem_of(path: Path) -> Path:
        # macOS and Linux spell accents in two ways, and archives mix them.
        below = path.relative_to(folder).with_suffix("")
        return folder / unicodedata.normalize("NFC", str(below))

    for path in paths:
        if is_picture(path):
            stems[stem_of(path)].append(path)
        elif not _is_text(path):
            others[stem_of(path)].append(path)
            left_out.pass_over(path)
    for path in paths:
        if _is_text(path):
            # cat.jpg.txt is of cat.jpg, unless there is a picture cat.jpg.png.
            stem = stem_of(path)
            of_name = stem if stem in stems or not is_picture(stem) else stem_of(stem)
            stems[of_name if of_name in stems else stem].append(path)
    for stem, found in stems.items():
        found.sort()
        if not any(map(is_picture, found)):
            found += [each for each in others.get(stem, ()) if extension_of(each) != ".json"]
    return dict(stems)


def _is_text(path: Path) -> bool:
    return path.suffix.lower() == _TEXT_SUFFIX
