"""Reads the orientation out of an XMP packet, without parsing it as XML."""

import re
from typing import Final

XMP_START: Final = b"http://ns.adobe.com/xap/1.0/\0"
"""What a JPEG's APP1 segment with a packet begins with."""
XMP_KEYWORD: Final = b"XML:com.adobe.xmp\0"
"""What a PNG's iTXt chunk with a packet begins with."""
# A JPEG's packet is in one segment, so it is never longer.
_MAX_XMP_BYTES: Final = 65_536

_TIFF_PREFIX = re.compile(rb"""xmlns:([\w.-]{1,32})=["']http://ns\.adobe\.com/tiff/1\.0/["']""")
_DEFAULT_PREFIX = b"tiff"


def xmp_orientation(packet: bytes) -> int | None:
    """Returns tiff:Orientation, 1 to 8, as an attribute or an element; None without one.

    A packet is RDF, which may spell a property in several ways and pull in entities. These are the
    two ways that programs write it, and nothing is expanded.
    """
    packet = packet[:_MAX_XMP_BYTES]
    declared = _TIFF_PREFIX.search(packet)
    prefix = re.escape(declared[1] if declared else _DEFAULT_PREFIX)
    # Possessive, so that no packet takes longer than its length.
    found = re.search(
        rb"[\s<]" + prefix + rb""":Orientation\s*+(?:=\s*+["']|>)\s*+([1-8])\s*+["'<]""", packet
    )
    return int(found[1]) if found else None


def png_packet(text: bytes) -> bytes:
    """Returns the packet of an iTXt chunk's data; empty if it has none.

    A compressed one counts as none: XMP's specification wants it plain, and it may be a bomb.
    """
    if not text.startswith(XMP_KEYWORD + b"\0"):
        return b""
    _, _, packet = text[len(XMP_KEYWORD) + 2 :].partition(b"\0")
    return packet.partition(b"\0")[2]
