"""Reads Multi30k: Flickr30k's pictures with captions in English, German, French and Czech.

There are two variants, each a folder of files whose lines i belong to the same picture:

    task1   train.en train.de train.fr train.cs      one caption a language, translated from English
    task2   train.1.en … train.5.en, train.1.de …    five a language, written independently

with the pictures' names in `train_images.txt` or `train.txt`. Caption files may be compressed
(.gz) and may lie in `raw/`, lists in `image_splits/`, as published. Splits have the names of the
files: train, val, test_2016_flickr, test_2016 …

Figures of the variants are not comparable: task 1 has one right caption per picture and language,
task 2 has five. Neither are those of Karpathy's Flickr30k, whose splits have other pictures.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, SplitUnknown
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.caption_text import decoded, numbered_captions, numbered_lines
from tandem.corpus.readers.image_sources import ImageFile, image_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import split_named
from tandem.corpus.records import Caption, Record

Variant = Literal["task1", "task2"]
VARIANTS: Final[tuple[Variant, Variant]] = ("task1", "task2")

_CAPTIONS = re.compile(r"(?P<split>\w+)(\.(?P<number>\d))?\.(?P<language>[a-z]{2})(\.gz)?")
_CAPTION_NUMBER = re.compile(r"#\d+$")
_CAPTION_FOLDERS = ("", "raw")
_LISTS = ("{}_images.txt", "image_splits/{}_images.txt", "{}.txt", "image_splits/{}.txt")


def read_multi30k(
    folder: Path,
    image_root: Path,
    split: str,
    variant: Variant | None = None,
    left_out: LeftOut | None = None,
) -> RecordStream:
    """Returns a split's records in the order of its picture list, captions by language.

    A record has captions in every language that the split has a file for. `variant` need only be
    given where `folder` holds both.

    Everything except the pictures is read at the call, which raises CorpusFileMissing,
    SplitUnknown, and CorpusMalformed where files have different numbers of lines or a picture is
    listed twice. A line that is not UTF-8 is its record's `captions_fault`. Refuses a record whose
    picture lies outside. A missing picture is found when it is read.
    """
    left_out = LeftOut() if left_out is None else left_out
    files = _caption_files(folder, variant)
    if not files:
        raise CorpusFileMissing(_what_to_give(folder))
    chosen = split_named(split, files, folder, left_out)
    picture_list = _list_of(folder, chosen)
    if picture_list is None:
        raise SplitUnknown(place=folder, split=split, known=files)
    names = _picture_names(picture_list, folder, left_out)
    columns = {
        language: [(path, _lines(path, len(names), picture_list, folder)) for path in paths]
        for language, paths in files[chosen].items()
    }
    # The caller may choose another folder; otherwise pictures must stay in the corpus's folder.
    walls = folder if image_root.is_relative_to(folder) else image_root
    image_of = partial(image_file, image_root, walls=walls)
    records = _records(names, columns, picture_list, image_of, split, left_out)
    return RecordStream(records, folder, left_out, total=len(names))


def _records(
    names: list[str | None],
    columns: Mapping[str, list[tuple[Path, list[bytes]]]],
    picture_list: Path,
    image_of: Callable[[str, str], ImageFile],
    split: str,
    left_out: LeftOut,
) -> Iterator[Record]:
    for number, name in enumerate(names):
        if name is None:
            continue
        record_id = unicodedata.normalize("NFC", Path(name).stem)
        place = f"{picture_list}: line {number + 1}"
        try:
            image = image_of(name, place)
        except CorpusMalformed as error:
            left_out.refuse(error)
            continue
        captions: list[Caption] = []
        fault = None
        try:
            for language, of_language in columns.items():
                texts = [
                    decoded(lines[number], f"{path}: line {number + 1}")
                    for path, lines in of_language
                ]
                captions += numbered_captions(record_id, texts, language)
        except CorpusMalformed as error:
            captions, fault = [], str(error)
        yield Record(record_id, tuple(captions), split, record_id, image, captions_fault=fault)


def _caption_files(folder: Path, variant: Variant | None) -> dict[str, dict[str, list[Path]]]:
    """Returns the caption files of one variant by split and language, numbered ones in order.

    Splits without a picture list are omitted: such files may be anything, like README.md.
    """
    if not folder.is_dir():
        raise CorpusFileMissing(f"no folder {folder}; give the folder of the caption files")
    found: dict[Variant, dict[str, dict[str, dict[str, Path]]]] = {
        each: defaultdict(lambda: defaultdict(dict)) for each in VARIANTS
    }
    for name in _CAPTION_FOLDERS:
        for path in sorted((folder / name).glob("*")):
            match = _CAPTIONS.fullmatch(path.name)
            if match and path.is_file() and _list_of(folder, match["split"]):
                number = match["number"] or ""
                files = found["task2" if number else "task1"][match["split"]][match["language"]]
                # If a file exists uncompressed and compressed, the first is the uncompressed one.
                files.setdefault(number, path)
    there = [each for each in VARIANTS if found[each]]
    if variant is None and len(there) > 1:
        raise CorpusMalformed(
            f"{folder} holds both variants, {' and '.join(there)}; move each to a folder of its own"
        )
    chosen = found[variant or (there or VARIANTS)[0]]
    return {
        split: {
            language: [path for _, path in sorted(numbered.items())]
            for language, numbered in sorted(languages.items())
        }
        for split, languages in chosen.items()
    }


def _list_of(folder: Path, split: str) -> Path | None:
    paths = (folder / name.format(split) for name in _LISTS)
    return next((path for path in paths if path.is_file()), None)


def _what_to_give(folder: Path) -> str:
    inside = [each for each in VARIANTS if (folder / each).is_dir()]
    if inside:
        return f"{folder} holds the variants {', '.join(inside)}; give one: {folder / inside[0]}"
    return (
        f"{folder} has no caption files (train.en or train.1.en) with a picture list "
        "(train_images.txt) next to them; give the folder of one variant"
    )


def _picture_names(picture_list: Path, root: Path, left_out: LeftOut) -> list[str | None]:
    """Returns the name in each line, None for a rejected one."""
    names: list[str | None] = []
    seen: set[str] = set()
    for number, line in numbered_lines(picture_list, root):
        place = f"{picture_list}: line {number}"
        try:
            # The list of COCO's pictures appends a caption's number to each: 1.jpg#367178.
            name = _CAPTION_NUMBER.sub("", decoded(line, place).strip())
            if Path(name).stem in seen:
                raise CorpusMalformed(f"{place} lists {name} a second time; fetch the file again")
        except CorpusMalformed as error:
            left_out.refuse(error)
            names.append(None)
            continue
        seen.add(Path(name).stem)
        names.append(name)
    return names


def _lines(path: Path, count: int, picture_list: Path, root: Path) -> list[bytes]:
    lines: list[bytes] = []
    for number, line in numbered_lines(path, root):
        # Here, not at the end: a compressed file may unpack to far more than its size.
        if number > count:
            raise CorpusMalformed(_uneven(path, f"more than {count:,}", picture_list, count))
        lines.append(line)
    if len(lines) < count:
        raise CorpusMalformed(_uneven(path, f"{len(lines):,}", picture_list, count))
    return lines


def _uneven(path: Path, lines: str, picture_list: Path, count: int) -> str:
    return (
        f"{path} has {lines} lines, {picture_list.name} has {count:,}: line by line they must be "
        "of the same pictures; fetch both from one place"
    )
