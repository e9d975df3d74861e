"""Where an installed Triton is looked for."""

import sys
from pathlib import Path

import pytest

from tandem.triton.install import TritonUnavailable, wheel_folder


def test_triton_is_found_with_packages_of_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .pth file adds their folder to sys.path; `make install` unpacks Triton next to it."""
    packages = tmp_path / "lender/lib/python3.11/site-packages"
    server = tmp_path / "lender/triton/pytriton/tritonserver"
    server.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "borrower"))
    monkeypatch.setattr(sys, "path", [str(packages)])

    assert wheel_folder() == server


def test_without_triton_the_error_names_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(TritonUnavailable) as raised:
        wheel_folder()

    said = str(raised.value)
    assert f"pip install --no-deps --target {tmp_path / 'triton'} nvidia-pytriton==" in said
    assert said.endswith("tandem up --one-process needs none")
