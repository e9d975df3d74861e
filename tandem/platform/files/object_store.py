"""Opens a folder of an object store: S3, Google Cloud Storage, Azure, or a file system.

Credentials and endpoints come from the environment, as obstore reads them (`AWS_...`,
`GOOGLE_...`, `AZURE_...`); none stands in a URL.
"""

import fcntl
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tandem.installation import PackageMissing
from tandem.platform.files.private_files import PRIVATE_FILE, PRIVATE_FOLDER
from tandem.platform.files.whole_file import sync

_RETRY_SECONDS = 180.0


class ObjectFolder:
    """Creates, reads, lists and removes the objects below a URL.

    Any fault of the store or the way to it raises an OSError of one line, after retries.
    """

    def __init__(self, url: str, retry_seconds: float) -> None:
        try:  # Here, because obstore comes with an extra, and most commands do without.
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise PackageMissing("an object store", "obstore") from error
        self.url = url.rstrip("/")
        self._retry_seconds = retry_seconds
        # Options of the client would replace those of the environment.
        with self._named_faults():
            self._store = from_url(
                self.url, retry_config={"retry_timeout": timedelta(seconds=retry_seconds)}
            )

    def inner(self, name: str) -> Self:
        """Returns a folder within this one, which need not exist."""
        return type(self)(f"{self.url}/{name}", self._retry_seconds)

    def create(self, name: str, data: bytes) -> None:
        """Stores a whole object durably; raises FileExistsError where the name is taken."""
        with self._named_faults():
            self._store.put(name, data, mode="create", use_multipart=False)

    def swap(self, name: str, replaced: bytes | None, data: bytes) -> bool:
        """Stores an object durably in place of exactly that content, or of no object.

        Returns whether it did. The store has to honour conditions on an object's tag or version,
        as S3, Google Cloud Storage and Azure do.
        """
        with suppress(FileExistsError, FileNotFoundError), self._named_faults():
            mode: Any = "create"
            if replaced is not None:
                found = self._store.get(name)
                if found.bytes() != replaced:
                    return False
                mode = {tag: found.meta[tag] for tag in ("e_tag", "version") if found.meta[tag]}
            self._store.put(name, data, mode=mode, use_multipart=False)
            return True
        return False

    def read(self, name: str, max_bytes: float = math.inf) -> bytes:
        """Returns a whole object; raises FileNotFoundError, also for a larger one."""
        with self._named_faults():
            found = self._store.get(name)
            if found.meta["size"] > max_bytes:
                raise FileNotFoundError(f"{name} is too large")
            return bytes(found.bytes())

    def sizes(self) -> dict[str, int]:
        """Returns the sizes in bytes of all objects below, by name."""
        with self._named_faults():
            return {each["path"]: each["size"] for page in self._store.list() for each in page}

    def remove(self, names: list[str]) -> None:
        """Removes objects; those that are missing are no error."""
        with self._named_faults():
            self._store.delete(names)

    @contextmanager
    def _named_faults(self) -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(_first_line(error)) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(_first_line(error)) from error
        except (BaseError, ValueError) as error:
            raise OSError(f"{self.url}: {_first_line(error)}") from error


class _FileFolder(ObjectFolder):
    """Has its objects as files, each of which appears whole and durable."""

    def __init__(self, url: str, *, is_new: bool) -> None:
        self.url = url.rstrip("/")
        self._root = path_of(self.url)
        if is_new:
            _make_private(self._root)
        elif not self._root.is_dir():
            raise FileNotFoundError(f"{self.url} is not a folder")

    def inner(self, name: str) -> Self:
        return type(self)(f"{self.url}/{name}", is_new=True)

    def create(self, name: str, data: bytes) -> None:
        self._put(name, data, os.link)

    def swap(self, name: str, replaced: bytes | None, data: bytes) -> bool:
        lock = (self._root / name).with_name(".swaps")
        _make_private(lock.parent)
        lock.touch(PRIVATE_FILE)
        # Of the kernel, which frees it where its holder dies.
        with lock.open("rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            file = self._root / name
            is_that = (file.read_bytes() if file.exists() else None) == replaced
            if is_that:
                self._put(name, data, os.replace)
            return is_that

    def _put(self, name: str, data: bytes, place: Callable[[Path, Path], object]) -> None:
        file = self._root / name
        _make_private(file.parent)
        fresh = file.with_name(f".{secrets.token_hex(8)}")
        try:
            fresh.write_bytes(data)
            fresh.chmod(PRIVATE_FILE)
            sync(fresh)
            place(fresh, file)
        finally:
            fresh.unlink(missing_ok=True)
        sync(*(each for each in file.parents if each.is_relative_to(self._root)))

    def read(self, name: str, max_bytes: float = math.inf) -> bytes:
        file = self._root / name
        # Reading a named pipe, for example, would never end.
        if not file.is_file() or file.stat().st_size > max_bytes:
            raise FileNotFoundError(f"{self.url}/{name} is not a file, or too large")
        return file.read_bytes()

    def sizes(self) -> dict[str, int]:
        files = (each for each in self._root.rglob("[!.]*") if each.is_file())
        return {str(each.relative_to(self._root)): each.stat().st_size for each in files}

    def remove(self, names: list[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)


def object_folder(
    url: str, *, is_new: bool = False, retry_seconds: float = _RETRY_SECONDS
) -> ObjectFolder:
    """Opens the folder, with `is_new` also one that does not exist in a file system.

    Raises OSError for a URL of no known store, PackageMissing without obstore.
    """
    if url.startswith("file:"):
        return _FileFolder(url, is_new=is_new)
    return ObjectFolder(url, retry_seconds)


def path_of(url: str) -> Path:
    """Returns the path of a URL such as file:///folder."""
    return Path(unquote(urlsplit(url).path))


def _make_private(folder: Path) -> None:
    """Makes the folder and its parents where they are missing, for their owner alone."""
    for each in (*reversed(folder.parents), folder):
        each.mkdir(PRIVATE_FOLDER, exist_ok=True)


def _first_line(error: Exception) -> str:
    """Returns what happened, without the library's own trace of it."""
    return str(error).partition("\n")[0]
