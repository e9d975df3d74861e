"""Which precision a machine takes by itself."""

import platform
from pathlib import Path

import pytest

from tandem.model_io.repository import precision
from tandem.model_io.repository.precision import Precision, native_precision


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu sse2 avx512f avx512_bf16", Precision.BF16),
        ("Features\t: fp asimd bf16 i8mm", Precision.BF16),
        ("flags\t\t: fpu sse2 avx512f avx2", Precision.FP32),
        ("model name\t: a bf16 of its own", Precision.FP32),
    ],
)
def test_bf16_is_chosen_if_the_cpu_computes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: Precision
) -> None:
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(f"processor\t: 0\n{line}\n\n")
    monkeypatch.setattr(precision, "_CPU_INFO", cpu_info)
    monkeypatch.setattr(platform, "system", lambda: "Linux")

    assert native_precision() is expected


def test_elsewhere_than_linux_it_is_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")

    assert native_precision() is Precision.FP32
