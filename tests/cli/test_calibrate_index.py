"""`tandem calibrate`, as docs/abstention.md has it: its commands and Python run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.contract.content import ImageContent
from tandem.contract.search.ingest import IncomingItem
from tests.support.orchestrator_svc.downstream import door_address, ingest, stack

PAGE = (Path(__file__).parents[2] / "docs/abstention.md").read_text()
COMMANDS = re.findall(r"^\$ tandem (.*)$", PAGE, re.MULTILINE)
[PYTHON] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    """Serves 40 pictures, two degrees apart, by a bi-encoder alone."""
    addresses: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with stack() as behind, door_address(behind) as address:
            items = [
                IncomingItem(f"{n}.jpg", ImageContent(str(n).encode())) for n in range(0, 80, 2)
            ]
            assert not any((await ingest(behind.ingester, items, index_id="photos")).outcomes)
            behind.encoder.has_cross_encoder = False
            addresses.append(address)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield addresses[0]
    finally:
        done.set()
        thread.join()


def test_the_page_is_true(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It measures, then finds what is near, and says of a stranger that nothing matches."""
    monkeypatch.chdir(tmp_path)
    lines = [
        {"query_id": str(n), "text": str(n), "target": "image", "relevant": [f"{n}.jpg"]}
        for n in range(0, 80, 2)
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    outputs = []
    for command in COMMANDS:
        result = CliRunner().invoke(app, [*shlex.split(command), "--address", address])
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    stranger = ["search", "170 giraffes", "--index", "photos", "--max-false-answer-rate", "0.05"]
    silent = CliRunner().invoke(app, [*stranger, "--address", address])
    unpromised = CliRunner().invoke(app, [*stranger[:-1], "0.001", "--address", address])
    with Client(address) as client:
        seen = client.search("170 giraffes", index_id="photos", max_false_answer_rate=0.05)
    exec(compile(PYTHON.replace("localhost:7400", address), "docs/abstention.md", "exec"), {})

    measured, found = outputs
    assert re.search(r"text to image +bi-encoder +40 +40 ", measured)
    assert "100.0%" in measured
    assert "2.jpg" in found
    assert "4.jpg" in found
    assert "6.jpg" not in found
    assert silent.exit_code == 0
    assert "nothing here matches" in silent.output
    assert unpromised.exit_code == 1
    assert "40 null scores were measured, and it takes 999" in str(unpromised.exception)
    assert seen.abstention is not None
    assert seen.abstention.null_score_count == 40
    assert "nothing here matches" in capsys.readouterr().out
