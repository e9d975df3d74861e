"""Reads captions from UTF-8 text files, one per line, and from fields of a row or JSON object."""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.records import Caption

# A caption of 10,000 words has about 60,000 bytes; a longer line is not a caption, and a compressed
# file may unpack to far more than its size.
MAX_LINE_BYTES: Final = 2**20
# All captions of one picture.
MAX_TEXT_BYTES: Final = 2**20
CAPTION_FIELDS: Final = ("captions", "caption")
LANGUAGE_FIELD: Final = "language"
# Of other programs. A text in it counts too, since without it every caption would be English.
OTHER_LANGUAGE_FIELD: Final = "lang"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def numbered_lines(
    path: Path, root: Path | None = None, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yields each line without its end, with its number from 1; decompresses .gz files.

    Lines end only in LF or CR LF; str.splitlines would also split at U+2028 and similar characters,
    which occur in captions from the web. Lines are bytes, for `decoded`, so that one that is not
    UTF-8 affects only its own record. Raises CorpusFileMissing for a missing file or a link out of
    `root`, and CorpusMalformed for UTF-16, lines that end in only CR or are longer than
    `max_line_bytes`, or a file that cannot be read.
    """
    with open_plain_file(path, root) as packed:
        file = gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed
        number = 0
        while line := _read_line(file, f"{path}: line {number + 1}", max_line_bytes):
            number += 1
            if number == 1:
                _check_no_utf16(line, str(path))
            content = _content(line.removesuffix(b"\n"), number)
            if number == 1 and b"\r" in content:  # The whole file would be read as a single line.
                raise CorpusMalformed(
                    f"{path} ends its lines in CR alone, or has a CR inside line 1; end lines in "
                    "LF, for example with: tr '\\r' '\\n'"
                )
            yield number, content


def decoded(line: bytes, place: str) -> str:
    """Returns a line's text; raises CorpusMalformed if it is not UTF-8."""
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
    """Returns the lines of one picture's caption file without blank ones.

    Lines end in LF, CR LF or CR: here no line belongs to a line of another file. Raises
    CorpusMalformed over MAX_TEXT_BYTES or for text that is not UTF-8.
    """
    check_text_bytes(len(text_bytes), place)
    _check_no_utf16(text_bytes, place)
    lines = [
        decoded(_content(line, number), f"{place}: line {number}")
        for number, line in enumerate(_LINE_END.split(text_bytes), start=1)
    ]
    return [line for line in lines if line.strip()]


def check_text_bytes(byte_count: int, place: str) -> None:
    """Raises CorpusMalformed if one picture's captions have over MAX_TEXT_BYTES."""
    if byte_count > MAX_TEXT_BYTES:
        raise CorpusMalformed(
            f"{place} has more than {MAX_TEXT_BYTES:,} bytes; is it one picture's captions?"
        )


def caption_field(fields: Mapping[str, Any], place: str) -> list[str]:
    """Returns the texts of the first of CAPTION_FIELDS that has any, a text or a list of texts.

    Raises CorpusMalformed for anything else.
    """
    values = (fields.get(name) for name in CAPTION_FIELDS)
    found: Any = next((value for value in values if value not in (None, [])), [])
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(text, str) for text in texts):
        raise CorpusMalformed(f"{place} has a caption that is not text; correct it")
    return texts


def language_field(fields: Mapping[str, Any], place: str) -> str | None:
    """Returns the captions' language, if LANGUAGE_FIELD or OTHER_LANGUAGE_FIELD gives it.

    Raises CorpusMalformed for a LANGUAGE_FIELD that is not text.
    """
    language = fields.get(LANGUAGE_FIELD)
    if language is not None and not isinstance(language, str):
        raise CorpusMalformed(f"{place} has a {LANGUAGE_FIELD} that is not text; correct it")
    other = fields.get(OTHER_LANGUAGE_FIELD)
    return language or (other if isinstance(other, str) else None) or None


def numbered_captions(record_id: str, texts: Iterable[str], language: str) -> tuple[Caption, ...]:
    """Returns captions whose ids are the record's followed by "#en-0", "#en-1" and so on."""
    return tuple(
        Caption(f"{record_id}#{language}-{number}", text, language)
        for number, text in enumerate(texts)
    )


def _read_line(file: gzip.GzipFile | BufferedReader, place: str, max_bytes: int) -> bytes:
    try:
        line = file.readline(max_bytes + 1)
    except (EOFError, OSError, zlib.error) as error:  # of a .gz cut short, damaged, or none
        raise CorpusMalformed(f"{place} cannot be read ({error}); fetch the file again") from error
    if len(line) > max_bytes:
        raise CorpusMalformed(f"{place} has more than {max_bytes:,} bytes; is this a text?")
    return line


def _check_no_utf16(text_bytes: bytes, place: str) -> None:
    if text_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CorpusMalformed(
            f"{place} is UTF-16 and not UTF-8; save it as UTF-8, for example with: "
            "iconv -f utf-16 -t utf-8"
        )


def _content(line: bytes, number: int) -> bytes:
    """Returns a line without a byte order mark and a carriage return."""
    content = line.removesuffix(b"\r")
    return content.removeprefix(codecs.BOM_UTF8) if number == 1 else content
