"""Changes the model of an index while real services serve it, by the commands of the documents."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.errors import StoreFull
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tests.stack.test_next_models import endpoints, running
from tests.support.faults.small_disk import SmallDisk
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import with_lone_instances


def index(address: str, *arguments: str) -> dict[str, Any]:
    """Runs `tandem index`, and returns what it found."""
    result = CliRunner().invoke(app, ["index", *arguments, "--address", address, "--json"])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("system")
def test_a_model_is_changed_and_changed_back_while_searches_continue(
    tmp_path: Path, lone_instances: Path, tiny_checkpoint: Path
) -> None:
    """No search fails, each answer is of one model, and a rollback keeps what was written since."""
    exported = tmp_path / "exported"
    export_model(tiny_checkpoint, exported, Precision.BF16)
    other = with_lone_instances(exported, tmp_path / "other")
    models = shutil.copytree(lone_instances, tmp_path / "models")
    first, second = (read_manifest(each).fingerprint for each in (lone_instances, other))
    places = ["--checkpoint", str(tiny_checkpoint), "--model-repository", str(models)]
    with running(tmp_path, *places, "--next", str(other), "--shards", "2") as printed:
        address = endpoints(printed)["orchestrator"][0]
        with Client(address) as client:
            stored = [(f"item-{n}", encoded(noise(n), "PNG")) for n in range(40)]
            assert not [e.error for e in client.ingest(stored, index_id="photos") if e.error]
            is_over, seen, failures = threading.Event(), set[str](), list[str]()

            def search() -> None:
                with Client(address) as searching:
                    while not is_over.is_set():
                        try:
                            answer = searching.search("two cats", index_id="photos", rerank_k=5)
                            seen.add(answer.model_fingerprint)
                            is_over.wait(0.01)  # or it takes a core from what it looks at
                        except Exception as error:
                            failures.append(repr(error))

            searches = threading.Thread(target=search)
            searches.start()
            made = index(address, "create", "photos", "--wait")
            assert made == {"index_id": "photos@2", "model_fingerprint": second}
            assert index(address, "promote", "photos", "--ungated", "a test")["serving_id"] == (
                "photos@2"
            )
            late = [("late", encoded(noise(99), "PNG"))]
            assert not [e.error for e in client.ingest(late, index_id="photos") if e.error]
            assert client.search("cats", index_id="photos").model_fingerprint == second
            [alias] = index(address, "list")["aliases"]
            assert [each["state"] for each in alias["generations"]] == [
                "GENERATION_STATE_FOLLOWING",
                "GENERATION_STATE_SERVING",
            ]
            assert index(address, "rollback", "photos", "--why", "slow")["serving_id"] == "photos"
            answer = client.search("cats", index_id="photos", retrieve_k=100, return_n=100)
            assert answer.model_fingerprint == first
            assert len(answer.items) == 41
            index(address, "drop", "photos@2", "--yes")
            is_over.set()
            searches.join()
            assert failures == []
            assert seen == {first, second}


@pytest.mark.slow
@pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or "")
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("system")
def test_a_full_disk_delays_a_promotion_and_a_drop(
    tmp_path: Path, lone_instances: Path, tiny_checkpoint: Path
) -> None:
    """Each is refused by name, searches continue, and once there is room it is done."""
    exported = tmp_path / "exported"
    export_model(tiny_checkpoint, exported, Precision.BF16)
    other = with_lone_instances(exported, tmp_path / "other")
    models = shutil.copytree(lone_instances, tmp_path / "models")
    places = ["--checkpoint", str(tiny_checkpoint), "--model-repository", str(models)]
    with SmallDisk(tmp_path / "disk", 96 << 20) as disk:
        data = ["--data", str(disk.path / "data"), "--next", str(other), "--shards", "2"]
        with running(tmp_path, *places, *data) as printed, Client(at(printed)) as client:
            stored = [(f"item-{n}", encoded(noise(n), "PNG")) for n in range(40)]
            assert not [e.error for e in client.ingest(stored, index_id="photos") if e.error]
            index(at(printed), "create", "photos", "--wait")
            count = 40
            for command in (
                ["promote", "photos", "--ungated", "a test"],
                ["drop", "photos@1", "--yes"],
            ):
                disk.fill()
                count += stored_until_full(client, count)
                refused = tried(at(printed), *command)
                print(command[0], "on a full disk:", refused or "done")
                assert not refused or "full" in refused, (command, refused)
                assert client.search("cats", index_id="photos").items
                disk.empty()
                end = time.monotonic() + 120
                while refused and (refused := tried(at(printed), *command)):
                    assert time.monotonic() < end, refused
                    time.sleep(1.0)
            [alias] = index(at(printed), "list")["aliases"]
            assert [each["index_id"] for each in alias["generations"]] == ["photos@2"]
            assert int(alias["generations"][0]["item_count"]) == count


def at(printed: Path) -> str:
    """Returns the orchestrator's address."""
    return endpoints(printed)["orchestrator"][0]


def stored_until_full(client: Client, first: int) -> int:
    """Stores texts one by one; returns how many the server took before it had no room."""
    for number in range(2_000):
        [outcome] = client.ingest([(f"item-{first + number}", "two cats")], index_id="photos")
        if outcome.error is not None:
            assert isinstance(outcome.error, StoreFull)
            return number
    raise AssertionError("the disk is not full")


def tried(address: str, *arguments: str) -> str:
    """Runs `tandem index`, and returns why it failed; nothing if it did not."""
    result = CliRunner().invoke(app, ["index", *arguments, "--address", address])
    return f"{result.output} {result.exception}" if result.exit_code else ""
