"""What an installed wheel has: all that a checkout's packages have, and what it runs of deploy/."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tandem", "encoder_svc", "index_svc", "rerank_svc", "orchestrator_svc")
DEPLOYED = {
    "triton/backends": "deploy/triton/backends",
    "prometheus/rules": "deploy/prometheus/rules",
}
LOOKS = """
import sys
from tandem.deployed_files import deployed_folder
from tandem.child_processes.child_environment import module_path
print(*(deployed_folder(name) for name in sys.argv[1:]), *module_path(), sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's, unpacked as an install does."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [Path(sys.executable).with_name("hatchling"), "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "installed")
    path.unlink()
    return folder / "installed"


def tracked(folder: str) -> set[str]:
    """Returns the files of a folder that are part of the project, relative to it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {
        str(Path(name).relative_to(folder))
        for name in listed.split("\0")
        if name and (ROOT / name).is_file()
    }


def test_it_has_every_file_that_a_checkout_runs(wheel: Path) -> None:
    """Those of deploy/ are in the package, where the code looks for them."""
    folders = {package: package for package in PACKAGES}
    folders |= {f"tandem/deployed/{name}": folder for name, folder in DEPLOYED.items()}

    for installed, folder in folders.items():
        missing = {name for name in tracked(folder) if not (wheel / installed / name).is_file()}
        assert tracked(folder), folder
        assert missing == set(), folder


def test_it_runs_its_own_files_and_its_children_do(wheel: Path, tmp_path: Path) -> None:
    """Beside a checkout that is installed too."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", LOOKS, *DEPLOYED],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        check=True,
        capture_output=True,
        text=True,
    )

    lines = ended.stdout.splitlines()
    folders, path = lines[: len(DEPLOYED)], lines[len(DEPLOYED) :]
    assert folders == [str(wheel / "tandem" / "deployed" / name) for name in DEPLOYED]
    packages = next(number for number, line in enumerate(path) if line.endswith("site-packages"))
    assert path.index(str(wheel)) < packages
