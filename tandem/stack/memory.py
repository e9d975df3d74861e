"""Says what models need of this machine's memory, and what is left of it."""

import math
from contextlib import suppress
from pathlib import Path

from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.repository.manifest import Manifest, model_file
from tandem.stack.start_refused import StartRefused

_MIB = 1 << 20
# Measured on CPUs: an instance of Triton's has torch (175 to 225 MiB), and its own copy of the
# model, whose file of 590 MiB took 600; an encoder or a reranker without its caches 43 to 47 MiB.
_INSTANCE_BYTES, _FILE_SHARE, _SERVICE_BYTES = 224 * _MIB, 1.1, 64 * _MIB
# Limit, use, and of the use what the kernel gives up first; of version 2 and of version 1.
_GROUPS = {
    "": (".", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def check_memory(models: list[tuple[Path, Manifest]], shard_count: int, left_bytes: float) -> None:
    """Raises StartRefused if the models, by their repositories, do not fit next to one another."""
    needed = sum(
        _needed_bytes(repository, manifest, shard_count) for repository, manifest in models
    )
    if needed > left_bytes:
        raise StartRefused(
            f"both models need about {needed / _MIB:,.0f} MiB of memory, and "
            f"{left_bytes / _MIB:,.0f} MiB are available here: end other programs, raise the "
            "container's limit, add one of the models in another precision, or leave out --next"
        )


def available_bytes(root: Path = Path("/")) -> float:
    """Returns the memory that more processes may take: the machine's, or less by a cgroup."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    [left] = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    lefts: list[float] = [left]
    with suppress(OSError):  # A kernel may have no groups.
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kind, path = line.split(":", 2)
            if kind in _GROUPS:
                place, *names = _GROUPS[kind]
                top = root / "sys/fs/cgroup" / place
                own = top / path.strip("/")
                # A container's own group is mounted at the top, whatever its path.
                groups = [own, *(each for each in own.parents if each.is_relative_to(top))]
                lefts += [_left_bytes(group, *names) for group in groups]
    return min(lefts)


def _needed_bytes(repository: Path, manifest: Manifest, shard_count: int) -> int:
    files = [model_file(repository, name).stat().st_size for name in manifest.models]
    instances = sum(_INSTANCE_BYTES + round(_FILE_SHARE * each) for each in files)
    return INSTANCE_COUNT * instances + (1 + shard_count) * _SERVICE_BYTES


def _left_bytes(group: Path, limit: str, used: str, freed: str) -> float:
    try:
        most, now = (group / limit).read_text().strip(), int((group / used).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return math.inf
    return math.inf if most == "max" else int(most) - now + int(stat.get(freed, 0))
