"""Standard input whose texts are whole Unicode, so that the server answers each request.

JSON may have half of a surrogate pair ("\\ud800"), such as an emoji that was cut. The MCP library
drops such a line, and its caller waits for an answer that does not come.
"""

import io
import json
import re
from typing import BinaryIO, TextIO

HALF_MARK = "\N{REPLACEMENT CHARACTER}"
"""What stands for half of a pair, and for bytes that are not UTF-8; tools refuse it."""

# Of a pair or not: JSON's reader tells.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def whole_unicode(source: BinaryIO) -> TextIO:
    """Returns the source as a text stream, with a mark for each half of a pair."""
    return io.TextIOWrapper(io.BufferedReader(_Lines(source)), "utf-8", errors="replace")


class _Lines(io.RawIOBase):
    """Reads a line at a time, as it comes."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._left = b""

    def readable(self) -> bool:
        """Returns True, as a stream says that it can be read."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads a part of a line; 0 bytes mean the end."""
        self._left = self._left or _marked(self._source.readline())
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _marked(line: bytes) -> bytes:
    """Returns a line with a mark for each half of a pair; one that is not JSON as it is."""
    if not _SURROGATE.search(line):
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except ValueError:
        return line
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() + b"\n"
