"""Finds an image by the names that detectors and corpora give to it."""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

# As in COCO_val2014_000000391895 and flickr30k_000000036979, which others write 391895 and 36979.
# Fewer digits may number anything, and another image's regions would be taken silently.
_PADDED_NUMBER: Final = re.compile(r"(?<!\d)\d{6,}$")


class ImageNames:
    """Finds the id of an image under its own name or another one's spelling."""

    def __init__(self, image_ids: Iterable[str]) -> None:
        self._exact = dict.fromkeys(image_ids, "")
        self._stems: dict[str, str | None] = {}
        self._numbers: dict[str, str | None] = {}
        for image_id in self._exact:
            stem = PurePath(image_id).stem
            _add(self._stems, stem, image_id)
            for number in _numbers(stem):
                _add(self._numbers, number, image_id)

    def find(self, name: str) -> str | None:
        """Returns the id of the image of that name; None if there is none, or no single one.

        A name equals itself without its extension, and a bare number equals the same number at the
        end of a name, if that has at least six digits.
        """
        if name in self._exact:
            return name
        stem = PurePath(name).stem
        if found := self._stems.get(stem):
            return found
        for number in _numbers(stem):
            found = self._numbers.get(number)
            # One of the two is the bare number.
            if found and (stem.isdigit() or PurePath(found).stem.isdigit()):
                return found
        return None


def _add(names: dict[str, str | None], name: str, image_id: str) -> None:
    """Adds a name; one that two images share stands for neither."""
    names[name] = None if names.get(name, image_id) != image_id else image_id


def _numbers(stem: str) -> list[str]:
    """Returns the number that a name is, or that it ends with; none for others."""
    match = _PADDED_NUMBER.search(stem)
    digits = stem if stem.isdigit() else match[0] if match else ""
    return [digits.lstrip("0") or "0"] if digits else []
