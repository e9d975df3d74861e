"""Reads a JPEG's frame header, which says how much memory its decoder needs."""

import struct
from dataclasses import dataclass
from typing import Final

# Start-of-frame markers; the others of C0 to CF define tables.
FRAME_MARKERS: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_HUFFMAN_SEQUENTIAL: Final = frozenset({0xC0, 0xC1})
_HUFFMAN_PROGRESSIVE: Final = 0xC2
_BLOCK_SIDE = 8
_BLOCK_BYTES = 128  # 64 coefficients of 16 bits.


@dataclass(frozen=True, slots=True)
class JpegFrame:
    """Describes the size and the coding of a JPEG."""

    pixel_count: int
    is_huffman: bool
    """Whether it is baseline, extended or progressive with Huffman codes, as nearly all are."""
    is_sequential: bool
    component_count: int
    coefficient_bytes: int
    """Memory that a decoder needs to hold all coefficients at once."""

    def held_bytes(self, scan_component_count: int) -> int:
        """Returns the coefficients' bytes that a decoder holds; its first scan has so many parts.

        It decodes line by line only if one scan has every component in full.
        """
        is_by_line = self.is_sequential and scan_component_count == self.component_count
        return 0 if is_by_line else self.coefficient_bytes


def jpeg_frame(marker: int, segment: bytes) -> JpegFrame | None:
    """Returns what a start-of-frame segment says, from its length on; None if it is broken."""
    if len(segment) < 8:
        return None
    height, width, component_count = struct.unpack_from(">HHB", segment, 3)
    sampling = [(each >> 4, each & 15) for each in segment[9 : 8 + 3 * component_count : 3]]
    if not sampling or len(sampling) < component_count or not all(map(all, sampling)):
        return None
    across, down = (max(factors) for factors in zip(*sampling, strict=True))
    units = _divided(width, _BLOCK_SIDE * across) * _divided(height, _BLOCK_SIDE * down)
    return JpegFrame(
        pixel_count=width * height,
        is_huffman=marker in _HUFFMAN_SEQUENTIAL or marker == _HUFFMAN_PROGRESSIVE,
        is_sequential=marker in _HUFFMAN_SEQUENTIAL,
        component_count=component_count,
        coefficient_bytes=units * sum(x * y for x, y in sampling) * _BLOCK_BYTES,
    )


def _divided(count: int, size: int) -> int:
    """Returns the quotient, rounded up."""
    return -(-count // size)
