"""Reads lists of captions and picture files, in the layout of Conceptual Captions.

    a cat on a mat<TAB>cats/1.jpg

There is one file per split, `<split>.tsv`, without a header; the pictures lie below its folder.
Conceptual Captions' own files name URLs and are rejected: download the pictures first.
"""

import os
import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, PictureIsUrl
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.caption_text import decoded, numbered_captions, numbered_lines
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES, URL, image_file
from tandem.corpus.readers.plain_file import list_folder
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import split_named
from tandem.corpus.records import Caption, Record, record_id_of

_SUFFIX: Final = ".tsv"
# Flickr's own lists number a picture's captions: 1.jpg#0.
_PICTURE = re.compile(rf"({'|'.join(map(re.escape, PICTURE_SUFFIXES))})(#\d+)?\s*$", re.IGNORECASE)
_HEADERS: Final = ("image", "picture", "photo", "file", "filename", "file_name", "path", "url")


def read_caption_list(
    path: Path, split: str, language: str = "en", left_out: LeftOut | None = None
) -> RecordStream:
    """Returns a split's records in the file's order; every caption is in `language`.

    `path` is one list, or a folder of them. A record's id is the picture's name in the list, in
    NFC. Consecutive lines with the same picture are captions of one record; a later line that names
    it again is rejected.

    Raises CorpusFileMissing and SplitUnknown at the call. Reading a line raises or counts
    PictureIsUrl, and CorpusMalformed for other than two columns, a picture outside the folder, a
    picture named again, or a name that is not UTF-8. A caption that is not UTF-8 becomes its
    record's `captions_fault`. A missing picture is found when it is read.
    """
    left_out = LeftOut() if left_out is None else left_out
    lists = _lists(path, left_out)
    chosen = lists[split_named(split, lists, path, left_out)]
    return RecordStream(_records(path, chosen, split, language, left_out), chosen, left_out)


def _lists(path: Path, left_out: LeftOut) -> dict[str, Path]:
    if path.is_file():
        return {path.stem: path}
    if not path.is_dir():
        raise CorpusFileMissing(f"no file or folder {path}; give a .tsv file or a folder of them")
    lists: dict[str, Path] = {}
    files, _ = list_folder(path, path)
    for file in files:
        if file.suffix.lower() != _SUFFIX:
            continue
        if file.stem in lists:
            raise CorpusMalformed(f"{file} and {lists[file.stem].name} are one split; rename one")
        lists[file.stem] = file
    if not lists:  # Say what there is instead, such as a .csv; pictures lie next to lists.
        for file in files:
            if file.suffix.lower() not in PICTURE_SUFFIXES:
                left_out.pass_over(file)
    return lists


def _records(
    given: Path, path: Path, split: str, language: str, left_out: LeftOut
) -> Iterator[Record]:
    seen: set[str] = set()
    root = given if given.is_dir() else None
    for name, rows in groupby(_rows(path, root, left_out), key=itemgetter(2)):
        places, lines, _ = zip(*rows, strict=True)
        try:
            if name in seen:
                raise CorpusMalformed(
                    f"{places[0]} names {name} a second time; put the lines of a picture together"
                )
            if "\\" in name and not os.path.lexists(path.parent / name):
                raise CorpusMalformed(f"{places[0]} names {name}; write / for each backslash")
            image = image_file(path.parent, name, places[0])
        except CorpusMalformed as error:
            left_out.refuse(error)
            continue
        seen.add(name)
        record_id = record_id_of(name)
        captions: tuple[Caption, ...] = ()
        fault = None
        try:
            captions = numbered_captions(record_id, map(decoded, lines, places), language)
        except CorpusMalformed as error:
            fault = str(error)
        yield Record(record_id, captions, split, record_id, image, captions_fault=fault)


def _rows(path: Path, root: Path | None, left_out: LeftOut) -> Iterator[tuple[str, bytes, str]]:
    """Yields the place, caption and picture's name of each line."""
    for number, line in numbered_lines(path, root):
        if not line.strip(b" "):
            continue
        place = f"{path}: line {number}"
        try:
            yield place, *_columns(line, place)
        except CorpusMalformed as error:
            left_out.refuse(error)


def _columns(line: bytes, place: str) -> tuple[bytes, str]:
    columns = line.split(b"\t")
    if len(columns) != 2:
        raise CorpusMalformed(
            f"{place} has {len(columns)} columns; write caption, one tab, the picture's file"
        )
    name = unicodedata.normalize("NFC", decoded(columns[1], place))
    if URL.match(name):
        raise PictureIsUrl(place=place, url=name)
    if not _PICTURE.search(name):
        if _PICTURE.search(columns[0].decode("utf-8", "replace")):
            raise CorpusMalformed(f"{place} has the picture first; write caption, one tab, picture")
        if name.lower() in _HEADERS:
            raise CorpusMalformed(f"{place} is a header, which these lists have not; delete it")
    return columns[0], name
