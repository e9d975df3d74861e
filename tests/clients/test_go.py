"""clients/go: its example calls a server, its generated code is of the protos, and go.mod fits."""

import re
import subprocess
from pathlib import Path

import pytest

from tandem.client.testing import FakeServer
from tests.support.clients.debian import GO_SOURCES, are_installed, program, with_programs
from tests.support.clients.generated_code import ROOT, generate
from tests.support.clients.search_example import printed, refusing_server, run_example

FOLDER = ROOT / "clients/go"
GRPC = GO_SOURCES / "src/google.golang.org/grpc"
PROTOBUF = GO_SOURCES / "src/google.golang.org/protobuf"
MODULE = "tandem-search-client"

pytestmark = pytest.mark.xdist_group("clients-go")
needs_go = pytest.mark.skipif(
    not are_installed("go") or not GRPC.exists() or not PROTOBUF.exists(),
    reason="NOT CHECKED: the Go client, which needs golang-1.19-go, golang-google-grpc-dev, "
    "golang-google-protobuf-dev and golang-github-golang-protobuf-1-5-dev of Debian 12",
)
needs_plugins = pytest.mark.skipif(
    not are_installed("protoc-gen-go", "protoc-gen-go-grpc"),
    reason="NOT CHECKED: the Go client's generated code, which needs protoc-gen-go-1-5 and "
    "protoc-gen-go-grpc of Debian 12",
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the example with Debian's sources of gRPC and protobuf."""
    workspace = tmp_path_factory.mktemp("go")
    (workspace / "src").mkdir()
    (workspace / "src" / MODULE).symlink_to(FOLDER)
    environment = with_programs(
        GO111MODULE="off", GOPATH=f"{workspace}:{GO_SOURCES}", GOCACHE=str(ROOT / "build/go")
    )
    search = workspace / "search"
    generated, package = f"{MODULE}/gen/tandem/v1", f"{MODULE}/examples/search"
    for command in (["vet", generated, package], ["build", "-o", str(search), package]):
        subprocess.run(
            [str(program("go")), *command], cwd=workspace, env=environment, check=True, timeout=140
        )
    return search


@needs_go
def test_the_example_stores_searches_and_reads_an_error(example: Path) -> None:
    with FakeServer() as server:
        ended = run_example([example, server.address], FOLDER)

    assert ended.returncode == 0, ended.stderr
    expected = printed("SEARCH_PHASE_RETRIEVED", "SEARCH_PHASE_FINAL", "NotFound")
    assert ended.stdout.splitlines() == expected


@needs_go
def test_the_example_sends_its_token_and_ends_with_the_servers_error(example: Path) -> None:
    with refusing_server() as (address, calls):
        ended = run_example([example, address], FOLDER, with_programs(TANDEM_TOKEN="tk-1"))
        run_example([example, address], FOLDER, with_programs(TANDEM_TOKEN=""))

    assert calls.tokens == ["Bearer tk-1", None]
    assert ended.returncode == 1
    assert "code = Unimplemented" in ended.stderr


@needs_plugins
def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    asked = run_example([str(program("protoc-gen-go-grpc")), "--version"], tmp_path)
    if asked.stdout.strip() != "protoc-gen-go-grpc 1.0":
        pytest.skip(f"the committed code is of protoc-gen-go-grpc 1.0, not {asked.stdout.strip()}")

    generate("go", tmp_path)

    made, kept = contents(tmp_path / "gen"), contents(FOLDER / "gen")
    assert len(made) == 12
    assert [name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name)] == []


@needs_go
def test_go_mod_requires_the_versions_that_are_tested_here() -> None:
    """Older ones may lack what the code calls, and newer ones are the caller's choice."""
    version = re.findall(r'const Version = "(.*)"', (GRPC / "version.go").read_text())
    parts = (PROTOBUF / "internal/version/version.go").read_text()
    numbers = re.findall(r"^\s*(?:Major|Minor|Patch)\s*= (\d+)$", parts, re.MULTILINE)

    assert required()["google.golang.org/grpc"] == f"v{version[0]}"
    assert required()["google.golang.org/protobuf"] == f"v{'.'.join(numbers)}"


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the bytes of each file, by its name in the folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def required() -> dict[str, str]:
    """Returns the modules of go.mod and their versions."""
    lines = (FOLDER / "go.mod").read_text(encoding="utf-8")
    return dict(re.findall(r"^\t(\S+) (v\S+)$", lines, re.MULTILINE))
