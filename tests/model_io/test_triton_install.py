"""Where an installed Triton is looked for."""

import sys
from pathlib import Path

import pytest

from tandem.model_io.triton_install import wheel_folder


def test_triton_is_found_beside_packages_that_another_environment_lends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .pth file adds their folder to sys.path; `make install` unpacks Triton beside it."""
    packages = tmp_path / "lender/lib/python3.11/site-packages"
    server = tmp_path / "lender/triton/pytriton/tritonserver"
    server.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "borrower"))
    monkeypatch.setattr(sys, "path", [str(packages)])

    assert wheel_folder() == server
