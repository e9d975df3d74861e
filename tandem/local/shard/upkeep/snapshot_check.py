"""Checks snapshots: those with a FAISS index in a child process, which damage may kill.

`python -m tandem.local.shard.upkeep.snapshot_check BYTES FOLDER...` exits 0,
or prints what is wrong and exits 1.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tandem.local.shard.upkeep.snapshot import SnapshotInvalid, SnapshotManifest, read_snapshot
from tandem.platform.child_processes.child_environment import python_command, python_environment

_SPARE_BYTES = 2 << 30
# A busy machine may take most of it to import FAISS.
_SPARE_SECONDS = 120.0
_BYTES_PER_SECOND = 50e6


def check_snapshots(folders: Sequence[Path]) -> list[SnapshotManifest]:
    """Verifies that snapshots are intact and searchable, and returns their manifests.

    Reads them in a child process with limits on memory and time, if FAISS reads any of them: the
    rest are plain arrays. Raises SnapshotInvalid, also where the child dies or exceeds them.
    """
    manifests = [SnapshotManifest.read(folder) for folder in folders]
    if not any(one.index_type for one in manifests):
        return [_checked(folder) for folder in folders]
    memory_bytes, seconds = limits_of(manifests)
    names = ", ".join(map(str, folders))
    try:
        finished = subprocess.run(
            python_command(["-m", __name__, str(memory_bytes), *map(str, folders)]),
            env=python_environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SnapshotInvalid(
            f"{names}: reading did not finish within {error.timeout:.0f} s"
        ) from error
    if finished.returncode < 0:
        raise SnapshotInvalid(
            f"{names}: signal {-finished.returncode} killed the process that read it"
        )
    if finished.returncode:
        lines = (finished.stdout or finished.stderr).strip().splitlines()
        raise SnapshotInvalid(lines[-1] if lines else f"{names} cannot be read")
    return manifests


def limits_of(manifests: Sequence[SnapshotManifest]) -> tuple[int, float]:
    """Returns the address space and the seconds that reading these may take."""
    rows_bytes = sum(piece.size_bytes for one in manifests for piece in one.row_pieces)
    other_bytes = sum(entry.size_bytes for one in manifests for entry in one.files.values())
    return (
        rows_bytes + 4 * other_bytes + _SPARE_BYTES,  # rows are mapped
        _SPARE_SECONDS + (rows_bytes + other_bytes) / _BYTES_PER_SECOND,
    )


def _checked(folder: Path) -> SnapshotManifest:
    """Does the same in this process, for a snapshot that FAISS does not read."""
    try:
        return check_here(folder)
    except SnapshotInvalid:
        raise
    except Exception as error:  # whatever it is, a child would die of it
        raise SnapshotInvalid(f"{folder} cannot be read: {error!r}") from error


def check_here(folder: Path) -> SnapshotManifest:
    """Verifies one snapshot in this process, which damage may kill."""
    manifest = SnapshotManifest.read(folder)
    manifest.check_files(folder)
    part = read_snapshot(folder, manifest)
    query_D = np.zeros(manifest.dimension, dtype=np.float32)
    query_D[0] = 1
    hits = part.search(query_D, 10).hits
    if len(hits) != min(10, manifest.live_count):
        raise SnapshotInvalid(f"{folder} finds {len(hits)} of {manifest.live_count:,} items")
    return manifest


def _main() -> None:
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for folder in map(Path, sys.argv[2:]):
        try:
            check_here(folder)
        except (SnapshotInvalid, MemoryError, RuntimeError, ValueError, OSError) as error:
            print(f"{folder}: {error!r}")
            sys.exit(1)


if __name__ == "__main__":
    _main()
