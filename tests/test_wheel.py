"""What an installed wheel has: all that a checkout's packages have, and what it runs of deploy/."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that others install."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [Path(sys.executable).with_name("hatchling"), "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, unpacked as an install does."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def installed(built: Path, tmp_path: Path) -> Path:
    """A new environment with the wheel and its extra "demo"; returns its folder of programs.

    The other packages are those of this environment, which its .pth names, and Triton is next to
    them. pip asks no index: it fails where the extra needs anything that the locks do not have.
    """
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # A line of text, so that the .pth of this environment's own install of Tandem is not read.
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--isolated", "--python", str(folder / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--ignore-installed", "--no-deps", built],
        check=True,
    )
    subprocess.run(
        [
            *pip,
            "install",
            "--quiet",
            "--no-index",
            "--dry-run",
            f"tandem-search[demo] @ {built.as_uri()}",
        ],
        check=True,
    )
    return folder / "bin"


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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_up_runs_whole_from_it_away_from_any_checkout(installed: Path, tmp_path: Path) -> None:
    """With the shipped model, in an empty folder; one search is answered and nothing is left."""
    folder = tmp_path / "empty"
    folder.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "COLUMNS": "200"}
    tandem = str(installed / "tandem")

    def run(*arguments: str) -> str:
        command = [tandem, *arguments, "--address", address]
        return subprocess.run(
            command, cwd=folder, env=environment, check=True, capture_output=True, text=True
        ).stdout

    with (tmp_path / "said").open("wb") as said:
        up = subprocess.Popen(
            [tandem, "up", "--free-ports", "--shards", "1"],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        lines = _served(up, tmp_path / "said")
        address = next(line.split()[1] for line in lines if "orchestrator" in line)
        programs = {_command_line(int(line.split()[-1])) for line in lines if "127.0.0.1" in line}

        run("ingest", "scenes", "--count", "8", "--no-captions")
        found = run("search", "two birds", "--json")
        up.send_signal(signal.SIGINT)

        assert "scenes-test-00000" in found
        assert up.wait(timeout=60) == 0
        assert _session(up.pid) == []
        # What ran was the wheel's: no process was given a path of the checkout.
        assert len(programs) == 5
        assert not [line for line in programs if str(ROOT / "tandem") in line]
    finally:
        for pid in _session(up.pid):
            os.kill(pid, signal.SIGKILL)
        up.wait()


def _served(up: subprocess.Popen[bytes], said: Path) -> list[str]:
    """Returns the lines that say what runs where, as soon as they are there."""
    deadline_time = time.monotonic() + 600
    while "Ctrl-C stops everything" not in (text := said.read_text()):
        if up.poll() is not None or time.monotonic() > deadline_time:
            pytest.fail(f"up did not come up:\n{text}")
        time.sleep(0.2)
    return text.splitlines()


def _session(leader: int) -> list[int]:
    """Returns the processes of a session that are no zombies."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = status.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader and state != "Z":
            found.append(int(status.parent.name))
    return found


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
