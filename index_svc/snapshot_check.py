"""Whether a snapshot may be opened, found out in a process that may die of it.

`python -m index_svc.snapshot_check FOLDER` exits 0, or prints what is wrong and exits 1.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from index_svc.snapshot import Manifest, SnapshotInvalid, read_snapshot

_SPARE_BYTES = 2 << 30
_SPARE_SECONDS = 30.0
_BYTES_PER_SECOND = 50e6


def check_snapshot(folder: Path) -> Manifest:
    """Returns the manifest of a snapshot that is as it was written and can be searched.

    Reads it in a child process, with limits on its memory and time. Raises SnapshotInvalid, also
    where the child dies of it or does not come to an end.
    """
    manifest = Manifest.read(folder)
    size_bytes = sum(entry.size_bytes for entry in manifest.files.values())
    try:
        finished = subprocess.run(
            [sys.executable, "-m", __name__, str(folder), str(4 * size_bytes + _SPARE_BYTES)],
            capture_output=True,
            text=True,
            timeout=_SPARE_SECONDS + size_bytes / _BYTES_PER_SECOND,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SnapshotInvalid(f"{folder} takes too long to read: {error.timeout:.0f} s") from error
    if finished.returncode < 0:
        raise SnapshotInvalid(f"reading {folder} ended by signal {-finished.returncode}")
    if finished.returncode:
        lines = (finished.stdout or finished.stderr).strip().splitlines()
        raise SnapshotInvalid(lines[-1] if lines else f"{folder} cannot be read")
    return manifest


def _check(folder: Path) -> None:
    manifest = Manifest.read(folder)
    manifest.check_files(folder)
    part = read_snapshot(folder, manifest)
    query_D = np.zeros(manifest.dimension, dtype=np.float32)
    query_D[0] = 1
    hits = part.search(query_D, 10).hits
    if len(hits) != min(10, manifest.live_count):
        raise SnapshotInvalid(f"{folder} finds {len(hits)} of {manifest.live_count:,} items")


def _main() -> None:
    folder, memory_bytes = Path(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _check(folder)
    except (SnapshotInvalid, MemoryError, RuntimeError, ValueError, OSError) as error:
        print(f"{folder}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    _main()
