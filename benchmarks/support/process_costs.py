"""Reads the CPU time and memory of a process and all below it from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path


def process_tree(pid: int) -> set[int]:
    """Returns a process and all below it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    found = {pid}
    while added := {each for each, parent in parents.items() if parent in found} - found:
        found |= added
    return found


def tree_cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and all below it, which depends little on other load."""
    ticks = 0
    for each in process_tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_kb(pids: Iterable[int]) -> int:
    """Returns the processes' memory; what several share counts once."""
    return sum(map(_own_kb, pids))


def _own_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
