"""clients/typescript: npm generates its code, its example calls a server, package.json fits."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway_svc.upstream import SERVICE_NAMES
from tandem.client.testing import FakeServer
from tests.support.clients.generated_code import ROOT
from tests.support.clients.search_example import printed, run_example

FOLDER = ROOT / "clients/typescript"
pytestmark = pytest.mark.xdist_group("clients-typescript")
needs_npm = pytest.mark.skipif(
    shutil.which("npm") is None or not (FOLDER / "node_modules/.bin/buf").exists(),
    reason="npm ci was not run in clients/typescript; make test-clients runs it",
)


@pytest.fixture(scope="module")
def generated() -> Path:
    """Generates the code where the package has it, and returns the folder."""
    subprocess.run(["npm", "run", "--silent", "prepare"], cwd=FOLDER, check=True, timeout=120)
    return FOLDER / "gen"


@needs_npm
@pytest.mark.usefixtures("generated")
def test_the_example_stores_searches_and_reads_an_error() -> None:
    """From Node, over gRPC: streams both ways, scores, and the reason of an error."""
    with FakeServer() as server:
        ended = run_example(["node", "examples/search.js", server.address], FOLDER)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == printed("phase 1", "phase 2", "NotFound")


@needs_npm
def test_it_declares_the_public_services(generated: Path) -> None:
    """IndexService was among them, with 23 messages of its own."""
    found = {
        name
        for path in generated.rglob("*.d.ts")
        for name in re.findall(r"const (\w+): GenService", path.read_text(encoding="utf-8"))
    }

    assert found == {name.rpartition(".")[2] for name in SERVICE_NAMES}


def test_every_language_is_generated_by_one_version_of_buf() -> None:
    """npm, Maven and `make clients` each bring their own."""
    [version] = re.findall(r'"buf-bin==(.*?)"', (ROOT / "pyproject.toml").read_text("utf-8"))

    assert package()["devDependencies"]["@bufbuild/buf"] == version
    pom = (ROOT / "clients/java/pom.xml").read_text(encoding="utf-8")
    assert f"<buf.version>{version}</buf.version>" in pom


def package() -> dict[str, Any]:
    """Returns package.json."""
    found: dict[str, Any] = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    return found
