"""`tandem sync` of an index whose shards were put back to an earlier state."""

import shutil
import time
from pathlib import Path

from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, TextContent
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK

pytestmark = TINY_STACK


def test_older_contents_of_a_restored_shard_are_stored_again(
    tiny_stack: LocalStack, tmp_path: Path
) -> None:
    """The ids are the same in both states, and other items were stored since."""
    table, stores = tmp_path / "restored.csv", [tiny_stack.store_path(n) for n in range(2)]
    old = {f"t{number}": f"{number} birds" for number in range(40)}
    new = {name: f"{text} and a boat" if name < "t2" else text for name, text in old.items()}
    _sync(tiny_stack, table, old)
    _stop(tiny_stack)
    for number, store in enumerate(stores):
        shutil.copytree(store, tmp_path / f"copy-{number}")
    _start(tiny_stack)
    assert "not as it was left" not in _sync(tiny_stack, table, new)
    assert _texts(tiny_stack) == new
    _stop(tiny_stack)
    for number, store in enumerate(stores):
        shutil.rmtree(store)
        shutil.copytree(tmp_path / f"copy-{number}", store)
    _start(tiny_stack)
    assert _texts(tiny_stack) == old

    said = _sync(tiny_stack, table, new)

    assert "restored is not as it was left, and its contents are compared" in said
    assert f"{sum(old[name] != new[name] for name in old)} items stored" in said
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
    for number in range(2):
        stack.stop_service(f"rerank-{number}")
        stack.stop_service(f"index-{number}")


def _start(stack: LocalStack) -> None:
    for kind in ("index", "rerank"):
        for number in range(2):
            stack.start_service(f"{kind}-{number}")
            stack.wait_until_serving(f"{kind}-{number}", time.monotonic() + 120)
