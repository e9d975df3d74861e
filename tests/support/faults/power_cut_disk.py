"""Controls a disk whose power a test can cut: the process of volatile_mount.py."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.faults.volatile_files import Loss

ROOT = Path(__file__).parents[3]
_EXIT_SECONDS = 20


class PowerCutDisk:
    """Holds a mounted disk that loses unsynced writes when its power is cut."""

    def __init__(self, path: Path) -> None:
        """Mounts an empty disk at a new folder."""
        self.path = path
        path.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults.volatile_mount", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._answer()

    @staticmethod
    def why_not() -> str | None:
        """Returns why such a disk is not available here, None if it is."""
        if os.geteuid() != 0:
            return "mounting the power-cut disk needs root"
        if not Path("/dev/fuse").exists():
            return "there is no /dev/fuse: load the kernel's fuse module"
        return None

    def cut_power(self, loss: Loss, rng: random.Random) -> None:
        """Loses unsynced writes. Processes that used the files get errors; kill them."""
        self._tell({"cut": loss.value, "seed": rng.randrange(2**32)})

    def set_faults(self, rng: random.Random, **faults: float) -> None:
        """Sets delay_seconds and error_rate of syncs, and room_bytes; by default no faults."""
        self._tell({"faults": faults, "seed": rng.randrange(2**32)})

    def take_syncs(self) -> list[tuple[float, float, bool]]:
        """Returns (start, end, is_ok) of each sync of a file since the last call, in order.

        The times are of the monotonic clock, which is the same in every process.
        """
        return [(start, end, is_ok) for start, end, is_ok in self._tell({"syncs": None})]

    def close(self) -> None:
        """Unmounts the disk and drops its contents."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the power-cut disk ended: {self._process.wait()}")
        return json.loads(line)["answer"]
