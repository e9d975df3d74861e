"""Lists of captions and the files of their pictures, in the manner of Conceptual Captions.

    a cat on a mat<TAB>cats/1.jpg

One file a split, called `<split>.tsv`, without a header; the pictures lie under its folder.
Conceptual Captions' own files name URLs, and are refused: fetch the pictures first.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from tandem.corpus.caption_text import decoded, numbered_captions, numbered_lines
from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed, PictureIsUrl, SplitUnknown
from tandem.corpus.image_sources import image_file
from tandem.corpus.records import Caption, Record

_SUFFIX: Final = ".tsv"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://|//|data:", re.IGNORECASE)


def read_caption_list(path: Path, split: str, language: str = "en") -> Iterator[Record]:
    """Yields a split's records in the file's order; every caption is in `language`.

    `path` is one list, or a folder of them. A record's id is the picture's name as the list has it.
    Lines that follow one another and name one picture are captions of one record; a later line
    that names it again is refused.

    Raises at the call CorpusFileMissing and SplitUnknown. Raises when a line is due PictureIsUrl,
    and CorpusMalformed where it has not two columns, names a picture outside the folder, or names
    one a second time or not in UTF-8. A caption that is not UTF-8 is its record's
    `captions_fault`. Whether a picture is there shows when it is read.
    """
    lists = _lists(path)
    if split not in lists:
        raise SplitUnknown(place=path, split=split, known=lists)
    return _records(lists[split], split, language)


def _lists(path: Path) -> dict[str, Path]:
    if path.is_file():
        return {path.stem: path}
    if not path.is_dir():
        raise CorpusFileMissing(f"no file or folder {path}; give a .tsv file or a folder of them")
    return {file.stem: file for file in path.iterdir() if file.suffix == _SUFFIX and file.is_file()}


def _records(path: Path, split: str, language: str) -> Iterator[Record]:
    seen: set[str] = set()
    for name, rows in groupby(_rows(path), key=itemgetter(2)):
        places, lines, _ = zip(*rows, strict=True)
        if name in seen:
            raise CorpusMalformed(
                f"{places[0]} names {name} a second time; put the lines of a picture together"
            )
        seen.add(name)
        captions: tuple[Caption, ...] = ()
        fault = None
        try:
            captions = numbered_captions(name, map(decoded, lines, places), language)
        except CorpusMalformed as error:
            fault = str(error)
        image = image_file(path.parent, name, places[0])
        yield Record(name, captions, split, name, image, captions_fault=fault)


def _rows(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yields the place, caption and picture's name of each line."""
    for number, line in numbered_lines(path):
        if not line.strip(b" "):
            continue
        place = f"{path}: line {number}"
        columns = line.split(b"\t")
        if len(columns) != 2:
            raise CorpusMalformed(
                f"{place} has {len(columns)} columns; write caption, one tab, the picture's file"
            )
        name = decoded(columns[1], place)
        if _URL.match(name):
            raise PictureIsUrl(place=place, url=name)
        yield place, columns[0], name
