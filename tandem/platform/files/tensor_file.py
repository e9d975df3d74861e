"""Writes files of tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from safetensors import SafetensorError


@contextmanager
def failures_named(path: Path) -> Iterator[None]:
    """Has safetensors fail like any other write, on a full disk for instance.

    Raises OSError naming the file.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path} was not written: {error}") from error


@contextmanager
def opened_for_torch(path: Path) -> Iterator[IO[bytes]]:
    """Opens the file for torch.save and torch.jit.save; raises OSError naming it.

    Given a path, torch ends the process on a full disk, or only says that the file does not end
    where it should.
    """
    with path.open("wb") as file:
        output = _FaultKept(file)
        try:
            yield cast(IO[bytes], output)
            file.flush()
        except (OSError, RuntimeError) as error:
            fault = error if isinstance(error, OSError) else output.fault
            if fault is None:
                raise
            raise OSError(fault.errno, fault.strerror, str(path)) from error


class _FaultKept:
    """Keeps the fault of a write, which torch replaces by a RuntimeError of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self.fault: OSError | None = None
        self._file = file

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.fault = error
            raise

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()
