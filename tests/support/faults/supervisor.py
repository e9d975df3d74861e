"""Starts, pauses and kills real processes for tests, and reports how they ended."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
END_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Ending:
    """Describes how a process ended: by itself with a code, or by a signal."""

    exit_code: int | None = None
    killed_by: signal.Signals | None = None


class Supervised:
    """Runs one process in its own group, so that its children end with it.

    Its output is appended to the log.
    """

    def __init__(
        self, command: Sequence[str], log_path: Path, environment: Mapping[str, str]
    ) -> None:
        """Starts the process in the project's root, with the variables added to the environment."""
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        """Returns the id of the process, which is also that of its group."""
        return self._process.pid

    def log(self) -> str:
        """Returns what this process has written so far."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def ending(self) -> Ending | None:
        """Returns how the process ended, None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return Ending(exit_code=code) if code >= 0 else Ending(killed_by=signal.Signals(-code))

    def wait(self, timeout_seconds: float = END_SECONDS) -> Ending:
        """Waits until the process ends by itself; raises TimeoutExpired."""
        self._process.wait(timeout_seconds)
        ending = self.ending()
        assert ending is not None
        return ending

    def terminate(self) -> Ending:
        """Sends SIGTERM to the process and waits for its end."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kills the whole group by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def pause(self) -> None:
        """Stops the whole group until resume()."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continues the group."""
        os.killpg(self._process.pid, signal.SIGCONT)
