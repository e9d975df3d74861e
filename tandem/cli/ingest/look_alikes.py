"""Finds pictures that are the same except for size, compression or a cut margin."""

from typing import Final

import faiss
import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tandem.errors import TandemError
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import Fit, ImageRules

_HASH_SIZE: Final = 16
# Of 256 bits. docs/sync.md has what this finds, and how near different pictures come.
_MAX_DISTANCE: Final = 44
_RULES: Final = ImageRules(size=256, fit=Fit.SQUASH)
# The whole, and what a cut of 5 % leaves: of each side, of each corner, and about the middle.
_WINDOWS: Final = (
    (0, 0, 256, 256),
    *((13, 0, 256, 256), (0, 13, 256, 256), (0, 0, 243, 256), (0, 0, 256, 243)),
    *((x, y, x + 243, y + 243) for x, y in ((0, 0), (0, 13), (13, 0), (13, 13), (6, 6))),
)
# Pictures with less in them, such as blank pages, look all the same to the hash.
_MIN_DEVIATION: Final = 4.0


class LookAlikes:
    """Pictures by what they look like."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._by_digest: dict[bytes, str] = {}
        self._replaced: dict[str, str] = {}
        self._wholes, self._windows = (faiss.IndexBinaryFlat(_HASH_SIZE**2) for _ in range(2))

    def add(self, item_id: str, digest: bytes, look: bytes) -> None:
        """Adds a picture, of which `look_of` gave the look."""
        self._by_digest[digest] = item_id
        self._replaced.pop(item_id, None)
        if look:
            self._ids.append(item_id)
            self._wholes.add(_rows(look)[:1])
            self._windows.add(_rows(look))

    def replace(self, old_id: str, new_id: str) -> None:
        """Has what is the same as the old one be the same as the new one, which was added."""
        self._replaced[old_id] = new_id

    def twin(self, item_id: str, digest: bytes, look: bytes) -> str | None:
        """Returns the id of another picture that is the same."""
        near = [(0, self._by_digest[digest])] if digest in self._by_digest else []
        if look and self._ids:
            # Either may be the one that was cut. The two nearest: one may be this one as it was.
            for index, asked, count in (
                (self._wholes, _rows(look), 1),
                (self._windows, _rows(look)[:1], len(_WINDOWS)),
            ):
                distances, places = index.search(asked, 2 * count)
                near += [
                    (int(distance), self._ids[place // count])
                    for distance, place in zip(distances.ravel(), places.ravel(), strict=True)
                    if place >= 0 and distance <= _MAX_DISTANCE
                ]
        for _, found in sorted(near):
            while found in self._replaced:
                found = self._replaced[found]
            if found != item_id:
                return found
        return None


def look_of(picture: bytes) -> bytes:
    """Returns a hash of each window; nothing for a picture without enough in it."""
    try:
        grey = Image.fromarray(decode_image(picture, _RULES)).convert("L")
    except TandemError:  # The server says what is wrong with it.
        return b""
    if np.asarray(grey).std() < _MIN_DEVIATION:
        return b""
    hashes = (imagehash.phash(grey.crop(each), hash_size=_HASH_SIZE).hash for each in _WINDOWS)
    return b"".join(np.packbits(bits).tobytes() for bits in hashes)


def _rows(look: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(look, np.uint8).reshape(len(_WINDOWS), -1)
