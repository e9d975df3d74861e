"""Opens a folder of an object store: S3, Google Cloud Storage, Azure, or a file system.

Credentials and endpoints come from the environment, as obstore reads them (`AWS_...`,
`GOOGLE_...`, `AZURE_...`); none stands in a URL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tandem.installation import PackageMissing
from tandem.platform.files.whole_file import sync

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_RETRY_SECONDS = 180.0


class ObjectFolder:
    """Creates, reads, lists and removes the objects below a URL.

    Any fault of the store or the way to it raises an OSError of one line, after retries.
    """

    def __init__(
        self, url: str, *, is_new: bool = False, retry_seconds: float = _RETRY_SECONDS
    ) -> None:
        """Opens the folder, with `is_new` also one that does not exist in a file system.

        Raises OSError for a URL of no known store, PackageMissing without obstore.
        """
        try:  # Here, because obstore comes with an extra, and most commands do without.
            from obstore.store import LocalStore, from_url
        except ModuleNotFoundError as error:
            raise PackageMissing("an object store", "obstore") from error
        self.url = url.rstrip("/")
        self._retry_seconds = retry_seconds
        with self._named_faults():
            self._store: ObjectStore = (
                LocalStore.from_url(self.url, mkdir=is_new)
                if url.startswith("file:")
                # Options of the client would replace those of the environment.
                else from_url(
                    self.url,
                    retry_config={"retry_timeout": timedelta(seconds=retry_seconds)},
                )
            )

    def inner(self, name: str) -> Self:
        """Returns a folder within this one, which need not exist."""
        url = f"{self.url}/{name}"
        return type(self)(url, is_new=True, retry_seconds=self._retry_seconds)

    def create(self, name: str, data: bytes) -> None:
        """Stores a whole object durably; raises FileExistsError where the name is taken."""
        with self._named_faults():
            self._store.put(name, data, mode="create", use_multipart=False)
        root = getattr(self._store, "prefix", None)
        if isinstance(root, Path):  # obstore leaves a file to the system's cache
            file = root / name
            sync(file, *(each for each in file.parents if each.is_relative_to(root)))

    def read(self, name: str) -> bytes:
        """Returns a whole object; raises FileNotFoundError."""
        with self._named_faults():
            return bytes(self._store.get(name).bytes())

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
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except AlreadyExistsError as error:
            raise FileExistsError(_first_line(error)) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(_first_line(error)) from error
        except (BaseError, ValueError) as error:
            raise OSError(f"{self.url}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Returns what happened, without the library's own trace of it."""
    return str(error).partition("\n")[0]
