"""What processes hold, sampled over time, and whether it grows: memory, files, threads, /dev/shm.

Judged is a run without its first third, for what is kept once is kept by then: caches, pools, the
code that is imported late. Memory by the slope of a line of least squares; files and threads by the
fewest that there were in the first quarter of the judged part and in its last. What is kept is
there at every instant, and what comes and goes, as files of calls in progress do, is not.

Threads of gRPC's own pool are counted apart. It adds one when all are busy for a moment, its
first number cannot be set, and it lets go of one only after 20 s in which that had no work.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_MB_AN_HOUR = 2.0
WARM_UP_SHARE = 1 / 3
MOST_POOL_THREADS_MORE = 2
_POOL_THREAD = "event_engine"
_END_SHARE = 0.25
_LEAST_COUNT = 10
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one instant."""

    time: float
    resident_bytes: int
    """Its own; the pages of files that it has mapped, the item store's above all, are left out:
    they come as the file is read, and go when the kernel wants them."""
    file_count: int
    thread_count: int
    """Without those of gRPC's pool."""
    pool_thread_count: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What one process held at the end of the judged part of a run."""

    name: str
    first_mb: float
    last_mb: float
    mb_an_hour: float
    file_growth: int
    thread_growth: int
    pool_thread_growth: int = 0
    mb_by_minute: Sequence[float] = ()
    """Over the whole run, which distinguishes what levels off from what does not."""

    def faults(self) -> list[str]:
        """Returns what grows more than it may."""
        found = []
        if self.mb_an_hour > MOST_MB_AN_HOUR:
            found.append(f"{self.name}: memory grows by {self.mb_an_hour:.1f} MB an hour")
        if self.file_growth > 0:
            found.append(f"{self.name}: {self.file_growth} files more")
        if self.thread_growth > 0:
            found.append(f"{self.name}: {self.thread_growth} threads more")
        if self.pool_thread_growth > MOST_POOL_THREADS_MORE:
            found.append(f"{self.name}: {self.pool_thread_growth} threads of gRPC's pool more")
        return found


def sample(pid: int) -> Sample:
    """Returns what a process holds now; raises OSError where there is none."""
    process = Path("/proc") / str(pid)
    names = _thread_names(process)
    pool_count = names.count(_POOL_THREAD)
    return Sample(
        time.monotonic(),
        _own_bytes((process / "status").read_text()),
        len(list((process / "fd").iterdir())),
        len(names) - pool_count,
        pool_count,
    )


def shared_memory_bytes(prefix: str) -> int:
    """Returns how much of /dev/shm regions of that name take."""
    return sum(path.stat().st_size for path in _SHARED_MEMORY.glob(f"{prefix}*"))


def region_prefix(stub_pid: int) -> str:
    """Returns how the names of a server's regions begin, by one of its stubs.

    Other stacks on the machine have others.
    """
    words = (Path("/proc") / str(stub_pid) / "cmdline").read_text().split("\0")
    region = next(word for word in words if word.startswith("tandem_"))
    return "_".join(region.split("_")[:2])


def growth_of(name: str, samples: Sequence[Sample]) -> Growth:
    """Returns what the process held after the warm-up; raises ValueError for too few."""
    judged = samples[round(len(samples) * WARM_UP_SHARE) :]
    if len(judged) < _LEAST_COUNT:
        raise ValueError(f"{name}: {len(samples)} samples are too few to tell growth")
    return Growth(
        name,
        samples[0].resident_bytes / 1e6,
        samples[-1].resident_bytes / 1e6,
        slope([s.time / 3600 for s in judged], [s.resident_bytes / 1e6 for s in judged]),
        _grown([s.file_count for s in judged]),
        _grown([s.thread_count for s in judged]),
        _grown([s.pool_thread_count for s in judged]),
        _by_minute(samples),
    )


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Returns that of the line of least squares."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in xs)


def table(growths: Sequence[Growth]) -> str:
    """Returns a row a process, as Markdown."""
    rows = [
        "| process | MB at first | at last | MB an hour, judged | files | threads | gRPC's |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {each.name} | {each.first_mb:.1f} | {each.last_mb:.1f} | {each.mb_an_hour:+.1f} "
        f"| {each.file_growth:+d} | {each.thread_growth:+d} | {each.pool_thread_growth:+d} |"
        for each in growths
    ]
    return "\n".join(rows)


def with_descendants(pids: Iterable[int]) -> set[int]:
    """Returns the processes and all below them."""
    found = set(pids)
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Returns the CPU time of each process that exists."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def tree_cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and of those below it that exist."""
    return sum(cpu_seconds(with_descendants([pid])).values())


def children(pid: int) -> Mapping[int, str]:
    """Returns the processes of one's group, itself not among them, by id, with their models."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(group) == pid and state not in "ZX" and int(path.parent.name) != pid:
            # …/models/joint_encoder/1/model.py: the model, not its version.
            model = next((Path(w.decode()).parts[-3] for w in words if b"/models/" in w), "stub")
            found[int(path.parent.name)] = model
    return found


def _by_minute(samples: Sequence[Sample]) -> list[float]:
    minutes = {int((s.time - samples[0].time) // 60): s.resident_bytes for s in reversed(samples)}
    return [round(minutes[minute] / 1e6, 2) for minute in sorted(minutes)]


def _grown(counts: Sequence[int]) -> int:
    end = round(len(counts) * _END_SHARE)
    return min(counts[-end:]) - min(counts[:end])


def _thread_names(process: Path) -> list[str]:
    names = []
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            names.append((task / "comm").read_text().strip())
    return names


def _own_bytes(status: str) -> int:
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return 1024 * int(line.split()[1])
