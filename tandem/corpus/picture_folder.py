"""A folder of pictures, each with its captions in a text file beside it.

    folder/cat.jpg  folder/cat.txt          split "all"
    folder/train/cat.jpg  …/cat.txt         split "train", and so for every other subfolder

A picture is .jpg, .jpeg, .png or .webp; its text file has one caption a line. Other files are
passed over, but for a text file without a picture: that is a record whose picture is missing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tandem.corpus.caption_text import MAX_TEXT_BYTES, caption_lines, numbered_captions
from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, SplitUnknown
from tandem.corpus.image_sources import PICTURE_SUFFIXES, ImageFile, NoImage
from tandem.corpus.plain_file import list_folder, open_plain_file
from tandem.corpus.records import Caption, ImageSource, Record

WHOLE_SPLIT: Final = "all"
"""Of the pictures that lie in the folder itself."""

_TEXT_SUFFIX = ".txt"


def read_picture_folder(folder: Path, split: str, language: str = "en") -> Iterator[Record]:
    """Yields a split's records by the order of their names; every caption is in `language`.

    A record's id is its picture's path from `folder` without the suffix: "train/cat". A picture
    without a text file, or with an empty one, is a record without captions.

    The split is listed at the call, which raises CorpusFileMissing where a folder is not there or
    cannot be listed, SplitUnknown for a split without a picture, and CorpusMalformed for "all"
    where pictures lie in the folder itself and in a subfolder of that name. Raises CorpusMalformed
    where a record is due that has two pictures. A text file that cannot be read, or is not UTF-8,
    is its record's `captions_fault`. Whether a picture is there shows when it is read.
    """
    if not folder.is_dir():
        raise CorpusFileMissing(f"no folder {folder}; give the folder that the pictures lie in")
    files, folders = list_folder(folder)
    places = [_grouped(_files_below(child)) for child in folders if child.name == split]
    if split == WHOLE_SPLIT:
        places.append(_grouped(files))
    places = [stems for stems in places if _has_picture(stems)]
    if not places:
        raise SplitUnknown(place=folder, split=split, known=_splits(files, folders))
    if len(places) > 1:
        raise CorpusMalformed(
            f"{folder} has pictures in itself and in its subfolder {WHOLE_SPLIT!r}, which are two "
            "splits of one name; rename the subfolder"
        )
    return _records(folder, places[0], split, language)


def _splits(files: list[Path], folders: list[Path]) -> Iterator[str]:
    """Yields those that have a picture."""
    if _has_picture(_grouped(files)):
        yield WHOLE_SPLIT
    for child in folders:
        with suppress(CorpusFileMissing):
            if _has_picture(_grouped(_files_below(child))):
                yield child.name


def _records(
    folder: Path, stems: dict[Path, list[Path]], split: str, language: str
) -> Iterator[Record]:
    for stem, paths in sorted(stems.items()):
        record_id = _record_id(stem, folder)
        text = _only([path for path in paths if not _is_picture(path)], record_id, folder)
        picture = _only(_pictures(paths), record_id, folder)
        captions: tuple[Caption, ...] = ()
        fault = None
        try:
            lines = caption_lines(_head(text), str(text)) if text else []
            captions = numbered_captions(record_id, lines, language)
        except (CorpusFileMissing, CorpusMalformed) as error:
            fault = str(error)
        image: ImageSource = NoImage(
            str(text), f"no picture beside it ({', '.join(PICTURE_SUFFIXES)})"
        )
        if picture:
            image = ImageFile(picture, f"{folder}: {record_id}")
        yield Record(record_id, captions, split, record_id, image, captions_fault=fault)


def _only(paths: list[Path], record_id: str, folder: Path) -> Path | None:
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise CorpusMalformed(f"{folder}: {names} are both {record_id!r}; rename one of them")
    return paths[0] if paths else None


def _record_id(stem: Path, folder: Path) -> str:
    record_id = str(stem.relative_to(folder))
    try:
        record_id.encode()
    except UnicodeEncodeError:
        # Such a name can be neither sent nor shown.
        raise CorpusMalformed(
            f"{folder} has a file whose name is not UTF-8: {record_id!a}; rename it"
        ) from None
    return record_id


def _head(path: Path) -> bytes:
    with open_plain_file(path) as file:
        try:
            return file.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise CorpusMalformed(f"{path} cannot be read: {error.strerror}") from error


def _grouped(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Returns the files by their paths without suffixes."""
    stems = defaultdict(list)
    for path in paths:
        if path.suffix.lower() == _TEXT_SUFFIX or _is_picture(path):
            stems[path.with_suffix("")].append(path)
    return {stem: sorted(found) for stem, found in stems.items()}


def _has_picture(stems: dict[Path, list[Path]]) -> bool:
    return any(map(_pictures, stems.values()))


def _pictures(paths: list[Path]) -> list[Path]:
    return [path for path in paths if _is_picture(path)]


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES


def _files_below(folder: Path) -> Iterator[Path]:
    files, folders = list_folder(folder)
    yield from files
    for child in folders:
        # A link may lead back up, and the walk would never end.
        if not child.is_symlink():
            yield from _files_below(child)
