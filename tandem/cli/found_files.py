"""`tandem search --save`: what was found, as files whose names are made from the items' ids."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from tandem.cli.console import errors, one_line
from tandem.client import FoundItem
from tandem.contract.content import ImageContent, TextContent

# What every file system takes, and no shell reads as something else.
_UNSAFE = re.compile(r"[^\w.+=@-]|^[.-]")
_MAX_STEM_BYTES = 100
_DIGEST_LENGTH = 10
_SIGNATURES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG\r\n\x1a\n": ".png"}


class FoundFiles:
    """Writes contents into one folder, never outside it and never over what is another file."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder; raises OSError where that cannot be, before anything is asked for."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.paths: dict[str, Path] = {}
        """Of each item that has a file now, by its id."""
        self.refused_count = 0
        """Items that have none."""

    def save(self, items: Iterable[FoundItem]) -> None:
        """Writes a file an item; tells of each that has none, and why."""
        for item in items:
            match item.content:
                case TextContent(text):
                    content, suffix = text.encode(errors="surrogatepass"), ".txt"
                case ImageContent(image_bytes):
                    content, suffix = image_bytes, _suffix(image_bytes)
                case None:
                    self._refuse(f"{item.item_id} has no content any more")
                    continue
            path = self._folder / file_name(item.item_id, suffix)
            try:
                if _written(path, content):
                    self.paths[item.item_id] = path
                else:
                    self._refuse(f"{path} is there with other contents, and is left as it is")
            except OSError as error:  # as of a full disk; what was found is shown all the same
                self._refuse(f"{path}: {error.strerror}")

    def tell(self) -> None:
        """Says how many files there are."""
        count = len(set(self.paths.values()))
        errors.print(f"saved in {one_line(str(self._folder))}: {count:,} files")

    def _refuse(self, why: str) -> None:
        self.refused_count += 1
        errors.print(f"not saved: {one_line(why)}")


def file_name(item_id: str, suffix: str) -> str:
    """Returns the id as a file's name; one that had to be changed has a digest of the id in it.

    So no two ids have one name, but for the case of their letters.
    """
    safe = _UNSAFE.sub("_", item_id)
    short = safe.encode(errors="replace")[:_MAX_STEM_BYTES].decode(errors="ignore")
    if short == item_id:
        return item_id + suffix
    digest = hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()
    return f"{short}-{digest[:_DIGEST_LENGTH]}{suffix}"


def _suffix(image_bytes: bytes) -> str:
    for signature, suffix in _SIGNATURES.items():
        if image_bytes.startswith(signature):
            return suffix
    is_webp = image_bytes[:4] == b"RIFF" and image_bytes[8:12] == b"WEBP"
    return ".webp" if is_webp else ".bin"


def _written(path: Path, content: bytes) -> bool:
    """Writes a new file; returns whether the content is there now, by this or an earlier call."""
    try:
        # Exclusively, so that neither a file nor what a link points to is written over.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return path.is_file() and not path.is_symlink() and path.read_bytes() == content
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        path.unlink()
        raise
    return True
