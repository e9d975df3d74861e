"""What the three distributions have: together all that a checkout runs, and nothing twice.

`tandem-search-client` is the SDK, `tandem-search-demo` the demo's model and drawings, and
`tandem-search` everything else.
"""

import asyncio
import email
import email.message
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.client.search_server import search_server

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "tandem",
    "encoder_svc",
    "index_svc",
    "rerank_svc",
    "orchestrator_svc",
    "gateway_svc",
    "merged_svc",
)
DISTRIBUTIONS = {
    "tandem-search-client": "distributions/client",
    "tandem-search-demo": "distributions/demo",
    "tandem-search": ".",
}
MAX_CLIENT_BYTES = 190_000
DEPLOYED = {
    "triton/backends": "deploy/triton/backends",
    "prometheus/rules": "deploy/prometheus/rules",
}
LOOKS = """
import sys
from tandem.installation import deployed_folder
from tandem.platform.child_processes.child_environment import module_path
print(*(deployed_folder(name) for name in sys.argv[1:]), *module_path(), sep="\\n")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels that others install, by distribution."""
    wheels = {}
    for name, folder in DISTRIBUTIONS.items():
        target = tmp_path_factory.mktemp("built")
        hatchling = Path(sys.executable).with_name("hatchling")
        subprocess.run(
            [hatchling, "build", "-t", "wheel", "-d", target],
            cwd=ROOT / folder,
            check=True,
            capture_output=True,
        )
        [wheels[name]] = target.glob("*.whl")
    return wheels


@pytest.fixture(scope="module")
def wheel(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three, unpacked into one folder as an install does."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in built.values():
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture
def installed(built: dict[str, Path], tmp_path: Path) -> Path:
    """A new environment with the wheels and the extra "local"; returns its folder of programs.

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
        [
            *pip,
            "install",
            "--quiet",
            "--no-index",
            "--ignore-installed",
            "--no-deps",
            *built.values(),
        ],
        check=True,
    )
    subprocess.run(
        [
            *pip,
            "install",
            "--quiet",
            "--no-index",
            "--dry-run",
            f"tandem-search[local] @ {built['tandem-search'].as_uri()}",
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


def test_an_editable_install_is_the_checkout(tmp_path: Path) -> None:
    """Files that an install copied would hide what a developer changes."""
    code = "import tandem, tandem.client, tandem.v1; print(tandem.__path__)"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )

    assert ended.stdout.strip() == str([str(ROOT / "tandem")])


def test_no_file_is_in_two_of_them(built: dict[str, Path]) -> None:
    """To remove one would otherwise break another."""
    names = [
        name
        for path in built.values()
        for name in zipfile.ZipFile(path).namelist()
        if not name.partition("/")[0].endswith(".dist-info")
    ]

    assert len(names) > 300
    assert len(names) == len(set(names))


def test_the_client_has_the_stubs_of_the_public_services(built: dict[str, Path]) -> None:
    """With all that they import; the services' own are in tandem-search."""

    def stubs(name: str) -> set[str]:
        paths = map(Path, zipfile.ZipFile(built[name]).namelist())
        return {path.name for path in paths if path.match("tandem/v1/*_pb2.py")}

    client = stubs("tandem-search-client")
    needed = {
        f"{name}.py"
        for path in client
        for name in re.findall(
            r"^from tandem.v1 import (\w+)", (ROOT / "tandem/v1" / path).read_text(), re.MULTILINE
        )
    }

    services = {"search_service_pb2.py", "content_service_pb2.py", "model_service_pb2.py"}
    assert services < client
    assert {"content_pb2.py", "index_service_pb2.py"} < needed <= client
    assert "rerank_service_pb2.py" in stubs("tandem-search")


def test_the_client_is_small_and_needs_little(built: dict[str, Path]) -> None:
    """A backend that calls Tandem installs grpcio and protobuf."""
    path = built["tandem-search-client"]
    needed = metadata(path).get_all("Requires-Dist") or []

    assert path.stat().st_size < MAX_CLIENT_BYTES
    # grpcio needs the third itself.
    assert [Requirement(line).name for line in needed] == [
        "grpcio",
        "protobuf",
        "typing-extensions",
    ]


def test_all_have_one_version_and_name_it(built: dict[str, Path]) -> None:
    """tandem-search runs with the client and the demo of its own version alone."""
    versions = {metadata(path)["Version"] for path in built.values()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    ours = [line for line in [*project["dependencies"], *extras] if "tandem-search-" in line]

    [version] = versions
    assert sorted(ours) == [f"tandem-search-{name}=={version}" for name in ("client", "demo")]


def test_no_page_of_an_index_has_a_dead_link(built: dict[str, Path]) -> None:
    """A path of the repository leads nowhere from there."""
    for path in built.values():
        page = str(metadata(path).get_payload())
        assert len(page) > 200
        assert [link for link in re.findall(r"\]\(([^)]*)\)", page) if "://" not in link] == []


def test_each_distribution_has_the_licences_of_its_files(built: dict[str, Path]) -> None:
    """Drawings and font are of others."""
    licences = {name: metadata(path)["License-Expression"] for name, path in built.items()}
    files = metadata(built["tandem-search-demo"]).get_all("License-File")

    assert licences["tandem-search"] == licences["tandem-search-client"] == "Apache-2.0"
    assert set(licences["tandem-search-demo"].split(" AND ")) == {
        *("Apache-2.0", "Bitstream-Vera", "CC-BY-4.0", "MIT", "Unicode-3.0")
    }
    assert files is not None
    assert {Path(name).stem for name in files} == {
        *("LICENSE", "CREDITS", "Apache-2.0", "CC-BY-4.0", "LICENSE-DejaVu", "MIT", "Unicode-3.0")
    }


def test_missing_demo_files_are_named(built: dict[str, Path], tmp_path: Path) -> None:
    """Services alone do not need it."""
    for name in ("tandem-search", "tandem-search-client"):
        with zipfile.ZipFile(built[name]) as archive:
            archive.extractall(tmp_path / "wheels")
    code = """
from tandem.corpus.emoji import open_drawings
from tandem.installation import DemoFilesMissing
from tandem.modeling.default_checkpoint import default_checkpoint
for wanted in (default_checkpoint, open_drawings):
    try:
        wanted()
    except DemoFilesMissing as error:
        print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "wheels")},
        check=True,
        capture_output=True,
        text=True,
    )

    assert ended.stdout.count("pip install tandem-search-demo") == 2


@pytest.mark.slow
@pytest.mark.parametrize("protobuf", ["6.*", "7.*"])
@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14])
async def test_the_client_runs_on_other_pythons(
    minor: int, protobuf: str, built: dict[str, Path], tmp_path: Path
) -> None:
    """Installed as a user does, from an index, with warnings as errors; under both protobufs."""
    own = client_environment(f"python3.{minor}", tmp_path, built["tandem-search-client"], protobuf)

    async with search_server() as (address, _):
        calls = ROOT / "tests/support/client/sdk_calls.py"
        ended = await asyncio.create_subprocess_exec(
            *(own, "-W", "error", calls, address),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await ended.communicate()

    assert ended.returncode == 0
    assert said.decode().split("\n") == ["[]", "INDEX_ID_INVALID", "[]", ""]


def client_environment(python: str, folder: Path, client: Path, protobuf: str) -> Path:
    """Returns the Python of a new environment that has the client alone; skips without a Python."""
    found = shutil.which(python)
    # Managers of Pythons have a program for versions that are not chosen.
    if found is None or subprocess.run([found, "-V"], capture_output=True).returncode:
        pytest.skip(f"there is no {python} here")
    subprocess.run([found, "-m", "venv", folder / "venv"], check=True)
    own = folder / "venv" / "bin" / "python"
    install = [str(own), "-m", "pip", "install", "-q", str(client), f"protobuf=={protobuf}"]
    subprocess.run(install, check=True)
    return own


def metadata(path: Path) -> email.message.Message:
    """Returns what a wheel says of itself."""
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_it_runs_its_own_files_and_its_children_do(wheel: Path, tmp_path: Path) -> None:
    """Next to a checkout that is installed too."""
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
        assert len(programs) == 6
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
    """Returns the processes of a session that are not zombies."""
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
