"""clients/typescript: its example calls a server, and its generated code is of the protos."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.client.testing import FakeServer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients/typescript"
GENERATED = FOLDER / "gen"
PLUGIN = FOLDER / "node_modules/.bin/protoc-gen-es"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not PLUGIN.exists(),
    reason="npm ci was not run in clients/typescript; make test-clients runs it",
)


def test_the_example_stores_searches_and_reads_an_error() -> None:
    """From Node, over gRPC: streams both ways, scores, and the reason of an error."""
    with FakeServer() as server:
        ended = subprocess.run(
            ["node", "examples/search.js", server.address],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert ended.returncode == 0, ended.stderr
    # Of 3 and 5 words 2 are common with {a, red, cup}: 2 / sqrt(15).
    assert ended.stdout.splitlines() == [
        "stored cup-1 ",
        "stored cup-2 ",
        "1 cup-1 1.000",
        f"2 cup-2 {2 / 15**0.5:.3f}",
        "phase 1 2",
        "phase 2 2",
        "NotFound INDEX_NOT_FOUND",
    ]


def test_the_generated_code_is_that_of_the_protos(tmp_path: Path) -> None:
    """Or somebody changed a proto and did not run `make clients`."""
    buf = Path(sys.executable).with_name("buf")
    subprocess.run([buf, "generate", "--output", tmp_path], cwd=ROOT, check=True, timeout=120)
    made = tmp_path / "clients/typescript/gen"

    names = {path.relative_to(made) for path in made.rglob("*_pb.*")}
    assert len(names) == 16
    assert {path.relative_to(GENERATED) for path in GENERATED.rglob("*_pb.*")} == names
    stale = [
        str(name) for name in names if (made / name).read_text() != (GENERATED / name).read_text()
    ]
    assert stale == []
