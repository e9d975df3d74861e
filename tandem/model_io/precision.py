"""In which numbers an exported model computes."""

import platform
from enum import StrEnum
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
# What Linux calls bf16 arithmetic: x86's two kinds, and Arm's.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


class Precision(StrEnum):
    """Of the matrix products; norms, softmax and the heads stay in float32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """For GPUs: on most CPUs it is slow."""
    INT8 = "int8"
    """For CPUs, quantised as it runs. A pair's score then depends on what is in its batch."""


def native_precision() -> Precision:
    """Returns bf16 where this machine's CPU computes in it, else fp32.

    Elsewhere bf16 would run too, emulated and slower than fp32.
    """
    return Precision.BF16 if _BF16_FLAGS & _cpu_flags() else Precision.FP32


def _cpu_flags() -> set[str]:
    if platform.system() != "Linux":
        return set()
    lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = (line for line in lines if line.startswith(("flags", "Features")))
    return set(next(flags, "").split())
