"""Describes the machine and the source that an evaluation ran on."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Final

from tandem.installation import __version__

_CPU_INFO: Final = Path("/proc/cpuinfo")
_SOURCE: Final = Path(__file__).parents[4]


def machine_about() -> dict[str, str]:
    """Returns the processor, its cores, the release and the commit, for a report."""
    return {
        "tandem": ", commit ".join(filter(None, (__version__, _commit()))),
        "machine": f"{platform.machine()}, {platform.system()}",
        "CPU": _cpu_name(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
    }


def _cpu_name() -> str:
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "Hardware"):
                return value.strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Returns the commit of a source tree, and whether it has changes; nothing for a release."""
    if not (_SOURCE / ".git").exists():
        return ""
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(_SOURCE), *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for arguments in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"],
            )
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{head} with changes" if changes else head
