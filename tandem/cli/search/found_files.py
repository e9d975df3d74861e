"""`tandem search --save`: writes the found items as files named after their ids."""

import hashlib
import io
import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tandem.cli.terminal.console import errors, one_line
from tandem.client import FoundItem
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.regions import RegionContent
from tandem.model_io.pictures.heif_file import heif_kind

# Characters that every file system allows, and no shell interprets.
_UNSAFE = re.compile(r"[^\w.+=@-]|^[.-]")
_MAX_STEM_BYTES = 100
_DIGEST_LENGTH = 10
_SIGNATURES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG\r\n\x1a\n": ".png"}


class FoundFiles:
    """Writes contents into one folder, never outside of it, and never over another file."""

    def __init__(self, folder: Path) -> None:
        """Creates the folder; raises OSError before any search if that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.paths: dict[str, Path] = {}
        """The path of each saved item, by its id."""
        self.refused_count = 0
        """Items that were not saved."""

    def save(self, items: Iterable[FoundItem]) -> None:
        """Writes one file for each item; reports items that were not saved, and why."""
        for item in items:
            match item.content:
                case TextContent(text):
                    content, suffix = text.encode(errors="surrogatepass"), ".txt"
                case ImageContent(image_bytes):
                    content, suffix = image_bytes, _suffix(image_bytes)
                case RegionContent():
                    content, suffix = _archive(item.content), ".npz"
                case None:
                    self._refuse(f"{item.item_id} has no content any more")
                    continue
            path = self._folder / file_name(item.item_id, suffix)
            try:
                if _written(path, content):
                    self.paths[item.item_id] = path
                else:
                    self._refuse(f"{path} is there with other contents, and is left as it is")
            except OSError as error:  # For example a full disk; the results are still printed.
                self._refuse(f"{path}: {error.strerror}")

    def print_count(self) -> None:
        """Prints the number of files."""
        count = len(set(self.paths.values()))
        errors.print(f"saved in {one_line(str(self._folder))}: {count:,} files")

    def _refuse(self, why: str) -> None:
        self.refused_count += 1
        errors.print(f"not saved: {one_line(why)}")


def file_name(item_id: str, suffix: str) -> str:
    """Returns a file name for an id; a changed name contains a digest of the id.

    So two ids share a name only if they differ only in case.
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
    if kind := heif_kind(image_bytes):
        return f".{kind.lower()}"
    is_webp = image_bytes[:4] == b"RIFF" and image_bytes[8:12] == b"WEBP"
    return ".webp" if is_webp else ".bin"


def _written(path: Path, content: bytes) -> bool:
    """Writes a new file; returns whether the file has this content, also from an earlier call."""
    try:
        # Exclusively, so that it overwrites neither a file nor the target of a link.
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


def _archive(content: RegionContent) -> bytes:
    """Returns an archive in the layout of bottom-up-attention in PyTorch, which ingest reads."""
    shape = (content.region_count, content.feature_width)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        x=np.frombuffer(content.features, "<f2" if content.has_half_features else "<f4").reshape(
            shape
        ),
        bbox=np.frombuffer(content.boxes, "<f4").reshape(-1, 4),
        num_bbox=np.array(content.region_count),
        image_w=np.array(content.image_width),
        image_h=np.array(content.image_height),
    )
    return buffer.getvalue()
