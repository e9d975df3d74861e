"""Lists the number formats in which an exported model computes."""

import platform
from enum import StrEnum
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
# Linux's CPU flags for bf16 arithmetic: two of x86, and Arm's.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


class Precision(StrEnum):
    """Precision of the matrix products; norms, softmax and the heads stay in float32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """For GPUs: most CPUs are slow with it."""
    INT8 = "int8"
    """For CPUs, quantised dynamically, so that a pair's score depends on its batch."""


def native_precision() -> Precision:
    """Returns bf16 if this machine's CPU supports it, else fp32.

    Without support bf16 is emulated, and slower than fp32.
    """
    return Precision.BF16 if _BF16_FLAGS & _cpu_flags() else Precision.FP32


def _cpu_flags() -> set[str]:
    if platform.system() != "Linux":
        return set()
    lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = (line for line in lines if line.startswith(("flags", "Features")))
    return set(next(flags, "").split())
