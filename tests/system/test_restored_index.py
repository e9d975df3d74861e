"""`tandem sync` of an index of which a shard was put back to an earlier state."""

import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, TextContent
from tandem.local.item_store.backup import back_up, restore
from tandem.platform.files.object_store import object_folder
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK

# It waits for a call's whole time; tests/cli/test_sync.py shows what a sync does then.
pytestmark = [TINY_STACK, pytest.mark.slow]


def test_older_contents_of_a_restored_shard_are_stored_again(
    tiny_stack: LocalStack, tmp_path: Path
) -> None:
    """The ids are the same in both states."""
    table = tmp_path / "restored.csv"
    old = {f"t{number}": f"{number} birds" for number in range(40)}
    new = {name: f"{text} and a boat" if name < "t2" else text for name, text in old.items()}
    _sync(tiny_stack, table, old)
    store, place = tiny_stack.store_path(1), tmp_path / "backups"
    backup, _ = back_up(object_folder(place.as_uri(), is_new=True), store)
    assert "not as it was left" not in _sync(tiny_stack, table, new)
    assert _texts(tiny_stack) == new
    _stop(tiny_stack)
    shutil.rmtree(store)
    restore(backup, store)
    _start(tiny_stack)
    assert _texts(tiny_stack) != new

    said = _sync(tiny_stack, table, new)

    assert "restored is not as it was left, and its contents are compared" in said
    assert "0 items stored" not in said
    assert _texts(tiny_stack) == new


def _sync(stack: LocalStack, table: Path, texts: dict[str, str]) -> str:
    rows = [f"{name},{text}" for name, text in texts.items()]
    table.write_text("\n".join(["id,text", *rows]))
    result = CliRunner().invoke(app, ["sync", str(table), "--address", stack.address])
    assert result.exit_code == 0, result.output
    return result.output


def _texts(stack: LocalStack) -> dict[str, str]:
    found: dict[str, str] = {}
    with Client(stack.address, timeout_seconds=60) as client:
        ids = [each.item_id for each in client.list_items(index_id="restored")]
        for item in client.fetch_items(ids, index_id="restored"):
            assert isinstance(item.content, TextContent)
            found[item.item_id] = item.content.text
    return found


def _stop(stack: LocalStack) -> None:
    for service in ("rerank-1", "index-1"):
        stack.stop_service(service)


def _start(stack: LocalStack) -> None:
    for service in ("index-1", "rerank-1"):
        stack.start_service(service)
        stack.wait_until_serving(service, time.monotonic() + 120)
