"""Real processes under a test's hand: started, paused, killed, and their end told."""

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
    """How a process ended: by itself with a code, or by a signal."""

    exit_code: int | None = None
    killed_by: signal.Signals | None = None


class Supervised:
    """One process in a group of its own, so that what it starts ends with it.

    What it writes is appended to the log, which starts over with nothing and nobody.
    """

    def __init__(
        self, command: Sequence[str], log_path: Path, environment: Mapping[str, str]
    ) -> None:
        """Starts the process in the project's root, with the variables on top of the test's own."""
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
        """The process's id, and its group's."""
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
        """Asks the process to end, by SIGTERM, and waits until it has."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Ends the whole group by SIGKILL; nobody in it gets a chance to do anything."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def pause(self) -> None:
        """Stops the whole group, until resume(): alive, and silent."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the group run on."""
        os.killpg(self._process.pid, signal.SIGCONT)
