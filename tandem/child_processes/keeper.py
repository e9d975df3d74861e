"""What ends all that a process started, whatever ends that process."""

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from tandem.child_processes.keeper_process import MARK, region_prefix, work_folder_prefix

_SWEEP_SECONDS = 30.0


class ProcessKeeper:
    """A small process beside its parent that outlives it, by as long as it takes to end the rest.

    Its parent holds a pipe to it, and the kernel closes that however the parent ends: by SIGKILL
    too. Then it ends every process that has the mark in its environment, and so those that children
    started, in whatever group or session they are. Use it in a with statement.
    """

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._token = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def region_prefix(self) -> str:
        """What names of shared memory begin with that is removed at the end."""
        return region_prefix(self._token)

    @property
    def work_folder_prefix(self) -> str:
        """What names of folders begin with that are removed at the end, in `work_place()`."""
        return work_folder_prefix(self._token)

    def mark(self) -> dict[str, str]:
        """Returns the variable that marks a child as one to be ended; starts the keeper at need."""
        if self._process is None:
            self._process = subprocess.Popen(
                # Isolated and without site-packages: it starts in 20 ms and stays small.
                [sys.executable, "-I", "-S", _PROGRAM, self._token, str(work_place())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Away from the terminal, whose end is one of those it is there for.
                start_new_session=True,
                cwd="/",
                env={key: value for key, value in os.environ.items() if key != MARK},
            )
        return {MARK: self._token}

    def close(self) -> None:
        """Ends what still runs under the mark, and the keeper; returns when both are gone."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_SWEEP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def work_place() -> Path:
    """Returns a folder for work folders: a temporary one whose path a shell reads as one word.

    Triton's Python backend hands paths of it to a shell as they are.
    """
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if _is_plain(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise OSError(
        f"{tempfile.gettempdir()} cannot hold Triton's work folder: a space or sign in its path is "
        "read by a shell; set TMPDIR to a folder that can be written to, without such"
    )


def _is_plain(place: str) -> bool:
    return place.startswith("/") and all(
        letter.isalnum() or letter in "/._-+@%," for letter in place
    )


_PROGRAM = str(Path(__file__).with_name("keeper_process.py"))
