"""Captions in text files, one a line, UTF-8; and in the fields of a row or a JSON object."""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.records import Caption

# A caption of 10,000 words has some 60,000 bytes; a line of more than this is no caption.
MAX_LINE_BYTES: Final = 2**20
# Of the captions of one picture.
MAX_TEXT_BYTES: Final = 2**20
# A packed file may be far longer than it looks.
_MAX_SKIPPED_BYTES: Final = 2**28
CAPTION_FIELDS: Final = ("captions", "caption")
LANGUAGE_FIELD: Final = "language"


def numbered_lines(path: Path, root: Path | None = None) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its number from 1, without its end; a .gz file is unpacked on the way.

    Lines end in LF or CR LF and nothing else: str.splitlines would also end them at U+2028 and its
    like, which stand inside captions from the web. They come as bytes, for `decoded`: one that is
    not UTF-8 spoils its own record alone, as does one over MAX_LINE_BYTES, of which little more
    comes. Raises CorpusFileMissing when there is no such file or it leads out of `root`, and
    CorpusMalformed where it is UTF-16 or cannot be read.
    """
    with open_plain_file(path, root) as packed:
        file = gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed
        number = 0
        while line := _read_line(file, f"{path}: line {number + 1}"):
            number += 1
            if number == 1:
                _check_no_utf16(line, str(path))
            yield number, _content(line.removesuffix(b"\n"), number)


def decoded(line: bytes, place: str) -> str:
    """Returns a line's text; raises CorpusMalformed where it is none in UTF-8, or no line."""
    if len(line) > MAX_LINE_BYTES:
        raise CorpusMalformed(f"{place} has more than {MAX_LINE_BYTES:,} bytes; is this a text?")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusMalformed(
            f"{place} is not UTF-8 ({error.reason}); save the file as UTF-8, for example with: "
            "iconv -f latin1 -t utf-8"
        ) from error
    if "\0" in text:
        raise CorpusMalformed(f"{place} has NUL bytes in it; save the file as text in UTF-8")
    return text


def caption_lines(text_bytes: bytes, place: str) -> list[str]:
    """Returns the lines of one picture's caption file; blank ones are spacing, and left out.

    Raises CorpusMalformed over MAX_TEXT_BYTES or where they are not UTF-8.
    """
    if len(text_bytes) > MAX_TEXT_BYTES:
        raise CorpusMalformed(
            f"{place} has more than {MAX_TEXT_BYTES:,} bytes; is it one picture's captions?"
        )
    _check_no_utf16(text_bytes, place)
    lines = [
        decoded(_content(line, number), f"{place}: line {number}")
        for number, line in enumerate(text_bytes.split(b"\n"), start=1)
    ]
    return [line for line in lines if line.strip()]


def caption_field(fields: Mapping[str, Any], place: str) -> list[str]:
    """Returns the texts in the first of CAPTION_FIELDS that has any, a text alone or a list.

    Raises CorpusMalformed for what is no text.
    """
    told = (fields.get(name) for name in CAPTION_FIELDS)
    found: Any = next((value for value in told if value not in (None, [])), [])
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(text, str) for text in texts):
        raise CorpusMalformed(f"{place} has a caption that is no text; correct it")
    return texts


def language_field(fields: Mapping[str, Any], place: str) -> str | None:
    """Returns the captions' language, if it is told; raises CorpusMalformed for what is no text."""
    language = fields.get(LANGUAGE_FIELD)
    if language is not None and not isinstance(language, str):
        raise CorpusMalformed(f"{place} has a {LANGUAGE_FIELD} that is no text; correct it")
    return language


def numbered_captions(record_id: str, texts: Iterable[str], language: str) -> tuple[Caption, ...]:
    """Returns captions whose ids are the record's with "#en-0" and so on behind it."""
    return tuple(
        Caption(f"{record_id}#{language}-{number}", text, language)
        for number, text in enumerate(texts)
    )


def _read_line(file: gzip.GzipFile | BufferedReader, place: str) -> bytes:
    try:
        line = file.readline(MAX_LINE_BYTES + 1)
        skipped_bytes = 0
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            skipped_bytes += len(rest)
            if skipped_bytes > _MAX_SKIPPED_BYTES:
                raise CorpusMalformed(f"{place} does not end; is this a text?")
            rest = file.readline(MAX_LINE_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:  # of a .gz cut short, damaged, or none
        raise CorpusMalformed(f"{place} cannot be read ({error}); fetch the file again") from error
    return line


def _check_no_utf16(text_bytes: bytes, place: str) -> None:
    if text_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CorpusMalformed(
            f"{place} is UTF-16 and not UTF-8; save it as UTF-8, for example with: "
            "iconv -f utf-16 -t utf-8"
        )


def _content(line: bytes, number: int) -> bytes:
    """Returns a line without what an editor puts before the first and behind each."""
    content = line.removesuffix(b"\r")
    return content.removeprefix(codecs.BOM_UTF8) if number == 1 else content
