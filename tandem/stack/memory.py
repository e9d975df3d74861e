"""Says what models need of this machine's memory, and what is left of it."""

import math
import re
from pathlib import Path

from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.repository.manifest import Manifest, model_file

MIB = 1 << 20
# Measured on CPUs: an instance of Triton's has torch (175 to 225 MiB), and its own copy of the
# model, whose file of 590 MiB took 600; an encoder or a reranker without its caches 42 to 47 MiB.
_INSTANCE_BYTES, _FILE_SHARE, _SERVICE_BYTES = 224 * MIB, 1.1, 64 * MIB
# Of both versions: limit, use, and of the use what the kernel gives up first.
_GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def needed_bytes(repository: Path, manifest: Manifest, shard_count: int) -> int:
    """Returns about how much the Triton, the encoder and the rerankers of a model take."""
    files = [model_file(repository, name).stat().st_size for name in manifest.models]
    instances = sum(_INSTANCE_BYTES + round(_FILE_SHARE * each) for each in files)
    return INSTANCE_COUNT * instances + (1 + shard_count) * _SERVICE_BYTES


def available_bytes(root: Path = Path("/")) -> float:
    """Returns the memory that more processes may take: the machine's, or less by a cgroup."""
    [left] = re.findall(r"MemAvailable: +(\d+) kB", (root / "proc/meminfo").read_text())
    lefts: list[float] = [int(left) << 10]
    groups = (root / "proc/self/cgroup").read_text()
    for kind, path in re.findall(r"^\d+:(|memory):/(.*)$", groups, re.MULTILINE):
        # A container's own group is mounted at the top, whatever its path.
        own = root / "sys/fs/cgroup" / kind / path
        for group in (own, *own.parents):
            lefts += [_left_bytes(group, *files) for files in _GROUP_FILES]
    return min(lefts)


def _left_bytes(group: Path, limit: str, used: str, freed: str) -> float:
    try:
        most, now = (group / limit).read_text().strip(), int((group / used).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return math.inf
    return math.inf if most == "max" else int(most) - now + int(stat.get(freed, 0))
