"""clients/typescript: its example calls a server, and its generated code is of the protos."""

import shutil
from pathlib import Path

import pytest

from tandem.client.testing import FakeServer
from tests.support.clients.generated_code import stale_files
from tests.support.clients.search_example import printed, run_example

FOLDER = Path(__file__).parents[2] / "clients/typescript"
PLUGIN = FOLDER / "node_modules/.bin/protoc-gen-es"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not PLUGIN.exists(),
    reason="npm ci was not run in clients/typescript; make test-clients runs it",
)


def test_the_example_stores_searches_and_reads_an_error() -> None:
    """From Node, over gRPC: streams both ways, scores, and the reason of an error."""
    with FakeServer() as server:
        ended = run_example(["node", "examples/search.js", server.address], FOLDER)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == printed("phase 1", "phase 2", "NotFound")


def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    """Or somebody changed a proto and did not run `make clients`."""
    assert stale_files("typescript", tmp_path, count=16) == []
