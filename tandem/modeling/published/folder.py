"""Reads the files of a folder in the hub's layout, and notes which were read.

No code of a checkpoint is ever run: a file that asks for it (`auto_map`) is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

from torch import Tensor

from tandem.modeling.published.files import (
    CONFIG,
    WEIGHT_NAMES,
    PublishedCheckpointInvalid,
    declared_weights,
    read_weights,
    refuse_adapter,
    weight_files,
)
from tandem.modeling.published.licence import card_licence
from tandem.modeling.stored_weights import StoredWeight
from tandem.platform.files.json_object import FileInvalid, read_object, shown

_CARD = "README.md"
# What torch appends to some of its messages.
_CPP_TRACE = "Exception raised from"
# Some libraries list all that they know.
_MAX_MESSAGE_LENGTH = 400


class PublishedFolder:
    """A folder in the hub's layout; errors are PublishedCheckpointInvalid naming the file.

    An adapter's is refused.
    """

    def __init__(
        self,
        path: Path,
        root: Path | None = None,
        read: set[Path] | None = None,
        *,
        makes_head: bool = False,
    ) -> None:
        """Opens a folder, which may be inside `root`, where the model card is.

        With `makes_head` a model of regions without a head for pairs gets one, to be trained.
        """
        refuse_adapter(path)
        self.path = path
        self.makes_head = makes_head
        self._root = path if root is None else root
        self._read: set[Path] = set() if read is None else read

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """Returns the file's path, and notes that it is read."""
        self._read.add(self.path / name)
        return self.path / name

    def config(self) -> dict[str, Any]:
        return self.fields(CONFIG)

    def fields(self, name: str) -> dict[str, Any]:
        """Returns the fields of a JSON file; refuses one that asks for code of its own."""
        fields = read_object(self.file(name))
        if fields.get("auto_map"):
            raise self.refused(
                f"{name} asks for code of the checkpoint (auto_map), which is never run; take a "
                "checkpoint that transformers reads with its own classes"
            )
        return fields

    def optional_fields(self, name: str) -> dict[str, Any]:
        """Returns the fields of a JSON file, none if it is missing."""
        return self.fields(name) if self.has(name) else {}

    def declared_weights(self, names: Sequence[str] = WEIGHT_NAMES) -> dict[str, StoredWeight]:
        """Returns shape and type of the weights, as the headers of their files declare them."""
        with self.reading("its weights cannot be read"):
            return declared_weights(self.path, names)

    def read_weights(self, names: Sequence[str] = WEIGHT_NAMES) -> dict[str, Tensor]:
        """Returns the weights in float32."""
        with self.reading("its weights cannot be read"):
            weights = read_weights(self.path, names)
        self._read.update(weight_files(self.path, names))
        return weights

    def licence(self) -> str:
        """Returns the licence that the model card names, empty if it names none.

        The card is not among the files that were read: a new sentence in it is not a new model.
        """
        card = self._root / _CARD
        if not card.is_file():
            return ""
        return card_licence(card)

    def inner(self, name: str) -> "PublishedFolder":
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise self.refused(f"it names {shown(name)}, no folder inside it; download it again")
        return PublishedFolder(self.path / name, self._root, self._read)

    def sha256s(self) -> Mapping[str, str]:
        """Returns the digest of every file that was read, by its name in the outer folder."""
        digests = {}
        for path in sorted(self._read):
            with path.open("rb") as file:
                name = path.relative_to(self._root).as_posix()
                digests[name] = file_digest(file, "sha256").hexdigest()
        return digests

    def refused(self, why: str) -> PublishedCheckpointInvalid:
        """Returns the error that names the folder; `why` ends with what can be done."""
        return PublishedCheckpointInvalid(f"{self.path}: {why}")

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turns whatever an odd file makes a library or our arithmetic raise into a refusal.

        The message of another error becomes one line without a trace of C++.
        """
        try:
            yield
        except PublishedCheckpointInvalid:
            raise
        except FileInvalid as error:
            raise PublishedCheckpointInvalid(str(error)) from error
        except Exception as error:  # an odd field may make a library raise anything
            message = " ".join(str(error).split())
            message = message.partition(_CPP_TRACE)[0].rstrip(' "')[:_MAX_MESSAGE_LENGTH]
            if isinstance(error, LookupError | ArithmeticError) or not message:
                # Such as "'nonsense'", a key alone.
                message = f"{type(error).__name__} {message}".rstrip()
            remedy = "" if "; " in message else "; take the file that the model was published with"
            raise self.refused(f"{what}: {message}{remedy}") from error

    def check_served(
        self, fields: Mapping[str, Any], served: Mapping[str, Sequence[object]]
    ) -> None:
        """Refuses a field, where it is stated, with a value that would give another function."""
        for name, values in served.items():
            if (value := fields.get(name, values[0])) not in values:
                known = " or ".join(map(shown, values))
                raise self.unserved(f"{name} is {shown(value)}, and only {known} is served")

    def unserved(self, why: str) -> PublishedCheckpointInvalid:
        """Returns the error of a model that may be sound, and that is not served."""
        return self.refused(f"{why}; take another checkpoint")
