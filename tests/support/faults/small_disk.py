"""Makes a disk of a few MiB that a test can fill: ext4 in a file, on a loop device."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

_FILLER = "filler"
_STEP_BYTES = 1 << 16


class SmallDisk:
    """Holds a mounted ext4; needs root, mkfs.ext4 and a loop device."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Makes the disk at a new folder; raises OSError where that fails."""
        self.path = path
        self._image_path = path.with_suffix(".ext4")
        path.mkdir()
        with self._image_path.open("wb") as image:
            image.truncate(size_bytes)
        # No journal: it would take most of the disk. Nothing for root alone: the tests are root.
        options = ["-q", "-F", "-m", "0", "-O", "^has_journal"]
        _run(["mkfs.ext4", *options, str(self._image_path)])
        _run(["mount", "-o", "loop", str(self._image_path), str(path)])

    @staticmethod
    def why_not() -> str | None:
        """Returns why such a disk is not available here, None if it is."""
        if os.geteuid() != 0:
            return "mounting a small disk needs root"
        if shutil.which("mkfs.ext4") is None:
            return "there is no mkfs.ext4: install e2fsprogs"
        if not Path("/dev/loop-control").exists():
            return "there is no loop device: load the kernel's loop module"
        return None

    def free_bytes(self) -> int:
        """Returns how much can still be written."""
        room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize

    def fill(self, left_bytes: int = 0) -> None:
        """Fills the disk, except for so many bytes."""
        with (self.path / _FILLER).open("ab", buffering=0) as filler:
            with contextlib.suppress(OSError):  # it is full
                while (more := self.free_bytes() - left_bytes) > 0:
                    filler.write(bytes(min(more, _STEP_BYTES)))
            os.fsync(filler.fileno())

    def empty(self) -> None:
        """Frees what fill() took."""
        (self.path / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmounts the disk and drops its contents."""
        _run(["umount", "-l", str(self.path)])
        self._image_path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise OSError(f"{command[0]}: {finished.stderr.strip()}")
