"""Records which pictures a checkpoint was trained on, so that a test with them is noticed.

A picture is the first eight bytes of its file's SHA-256. Of a million trained and 5,000 tested
pictures, two different ones share these with a probability of 3 in ten billion. A picture that was
scaled or encoded again has another digest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

FILE_NAME: Final = "trained_pictures.npy"
_DIGEST_SIZE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class TrainedPictures:
    """Holds the digests of training pictures, each once."""

    digests: NDArray[np.uint64]
    """Ascending."""

    @classmethod
    def of(cls, sha256s: Iterable[bytes]) -> Self:
        """Returns the pictures whose files have these digests."""
        return cls(np.unique(_shortened(sha256s)))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Returns the pictures that a checkpoint's folder records, or None if it records none.

        Raises ValueError naming the file if it is damaged.
        """
        path = folder / FILE_NAME
        if not path.is_file():
            return None
        try:
            digests = np.load(path, allow_pickle=False)
            if digests.dtype != np.uint64 or digests.ndim != 1:
                raise ValueError(f"{digests.dtype} of {digests.ndim} dimensions")
        except (ValueError, EOFError, OSError) as error:
            raise ValueError(
                f"{path} is damaged ({error}); restore it, or remove it: no training picture is "
                "then recognised"
            ) from error
        return cls(np.unique(digests))

    def write(self, path: Path) -> None:
        with path.open("wb") as file:  # np.save would append a suffix to a path
            np.save(file, self.digests, allow_pickle=False)

    def joined(self, other: Self | None) -> Self:
        return self if other is None else type(self)(np.union1d(self.digests, other.digests))

    def which(self, sha256s: Iterable[bytes]) -> list[bool]:
        """Returns, for each picture, whether the checkpoint was trained on it."""
        trained: NDArray[Any] = np.isin(_shortened(sha256s), self.digests)
        return [bool(each) for each in trained]

    def __len__(self) -> int:
        return len(self.digests)


def _shortened(sha256s: Iterable[bytes]) -> NDArray[np.uint64]:
    numbers = [int.from_bytes(each[:_DIGEST_SIZE], "big") for each in sha256s]
    return np.array(numbers, np.uint64)
