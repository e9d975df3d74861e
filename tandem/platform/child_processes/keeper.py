"""Ends all processes that a process started, however that process ends."""

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from tandem.platform.child_processes.keeper_process import MARK, region_prefix, work_folder_prefix

_SWEEP_SECONDS = 30.0


class ProcessFailed(Exception):
    """A process that this one runs did not start, or has died."""


class ProcessKeeper:
    """A small process that outlives its parent just long enough to end the parent's children.

    The parent holds a pipe to it, which the kernel closes however the parent ends, SIGKILL
    included. Then it ends every process with the mark in its environment, also grandchildren in
    other groups and sessions. Use it in a with statement.
    """

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._token = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def region_prefix(self) -> str:
        """The name prefix of shared memory that the keeper removes at the end."""
        return region_prefix(self._token)

    @property
    def work_folder_prefix(self) -> str:
        """The name prefix of folders in `work_place()` that the keeper removes at the end."""
        return work_folder_prefix(self._token)

    def mark(self) -> dict[str, str]:
        """Returns the variable that marks a child, and starts the keeper if needed."""
        if self._process is None:
            self._process = subprocess.Popen(
                # Isolated and without site-packages: it starts in 20 ms and stays small.
                [sys.executable, "-I", "-S", _PROGRAM, self._token, str(work_place())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Detached from the terminal, whose end it must survive.
                start_new_session=True,
                cwd="/",
                env={key: value for key, value in os.environ.items() if key != MARK},
            )
        return {MARK: self._token}

    def close(self) -> None:
        """Ends the marked processes and the keeper; returns when all are gone."""
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
    """Returns a temporary folder whose path a shell reads as one word.

    Triton's Python backend passes paths in it to a shell without quotes.
    """
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if _is_plain(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    raise OSError(
        f"{tempfile.gettempdir()} cannot hold Triton's work folder: a shell would split its "
        "path; set TMPDIR to a writable folder without spaces or special characters"
    )


def _is_plain(place: str) -> bool:
    return place.startswith("/") and all(
        letter.isalnum() or letter in "/._-+@%," for letter in place
    )


_PROGRAM = str(Path(__file__).with_name("keeper_process.py"))
