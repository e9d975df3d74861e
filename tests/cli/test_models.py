"""`tandem models`: add, list, verify and remove, as typed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.model_io.repository.manifest import read_manifest
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture(name="checkpoint", scope="module")
def _checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    save_tiny_checkpoint(folder)
    return folder


@pytest.fixture(name="added", scope="module")
def _added(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("models") / "repository"
    status, output = run("add", str(checkpoint), repository, "--precision", "fp32")
    assert status == 0, output
    return repository


@pytest.fixture(name="repository")
def _repository(added: Path, tmp_path: Path) -> Path:
    """A copy, for a test to change."""
    return shutil.copytree(added, tmp_path / "repository")


def run(*arguments: str | Path, typed: str = "") -> tuple[int, str]:
    """Returns the exit status and what was printed; a Path is the repository."""
    words = [
        word
        for each in arguments
        for word in (["--model-repository", str(each)] if isinstance(each, Path) else [each])
    ]
    result = CliRunner().invoke(app, ["models", *words], input=typed)
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_list_prints_a_row_a_model(checkpoint: Path, added: Path) -> None:
    manifest = read_manifest(added)
    digest = manifest.checkpoint["weights_sha256"]

    status, output = run("list", added)

    rows = [line.split() for line in output.splitlines() if "joint " in line]
    size = f"{(added / 'joint_encoder/1/model.pt').stat().st_size / 1e6:.1f}"
    assert status == 0
    assert [row[0] for row in rows] == ["image_backbone", "joint_encoder"]
    assert rows[1] == [
        "joint_encoder",
        "joint",
        "fp32",
        manifest.fingerprint[:12],
        "16",
        digest[:12],
        size,
        "own",
    ]


def test_verify_says_what_it_found(checkpoint: Path, added: Path) -> None:
    fingerprint = read_manifest(added).fingerprint[:12]

    alone, beside = run("verify", added), run("verify", added, "--checkpoint", str(checkpoint))

    assert alone[0] == beside[0] == 0
    assert f"model {fingerprint} is whole and answers" in " ".join(alone[1].split())
    assert "gives what" in " ".join(beside[1].split())
    assert "gives what" not in alone[1]


def test_verify_ends_with_1_and_the_cause_on_one_line(repository: Path) -> None:
    path = repository / "image_backbone" / "1" / "model.pt"
    path.write_bytes(b"")
    command = [sys.executable, "-m", "tandem.cli", "models", "verify", "--model-repository"]

    ended = subprocess.run([*command, str(repository)], capture_output=True, text=True)

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"{path} is not the file" in ended.stderr.replace("\n", "")


def test_remove_asks_for_confirmation(repository: Path) -> None:
    fingerprint = read_manifest(repository).fingerprint[:12]

    status, output = run("remove", repository, typed="n\n")

    assert status == 1
    assert f"Delete model {fingerprint}, fp32" in output
    read_manifest(repository).verify(repository)


@pytest.mark.parametrize("typed", [""], ids=["--yes"])
def test_add_restores_what_remove_deleted(checkpoint: Path, repository: Path, typed: str) -> None:
    """The same model, and config.pbtxt was never touched."""
    before = read_manifest(repository)
    configs = {path: path.stat().st_mtime_ns for path in repository.glob("*/config.pbtxt")}

    status, output = run("remove", repository, *([] if typed else ["--yes"]), typed=typed)

    assert status == 0, output
    assert run("verify", repository)[0] == 1
    assert {path: path.stat().st_mtime_ns for path in configs} == configs
    assert run("add", str(checkpoint), repository, "--precision", "fp32")[0] == 0
    assert read_manifest(repository).fingerprint == before.fingerprint
    assert run("verify", repository, "--checkpoint", str(checkpoint))[0] == 0
