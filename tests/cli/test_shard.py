"""`tandem shard`: verify, backup, restore and grow, as typed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.stored_values import overwrite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store of five items."""
    path = tmp_path / "shard"
    store = ItemStore.open(path, 0, 1)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(i) for i in "abcde"])])
    store.close()
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    """Returns the exit status and what was printed."""
    result = CliRunner().invoke(app, ["shard", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_backup_is_made_verified_and_restored(path: Path, tmp_path: Path) -> None:
    """The four commands in a row, each saying what it did."""
    status, output = run("backup", path, tmp_path / "backups")
    assert status == 0, output
    told, name = output.splitlines()
    assert told.startswith("shard 0 of 1 at change 5: items 5 in scenes; ")
    assert Path(name).parent == tmp_path / "backups"

    assert run("verify", name) == (0, f"{name} is sound: 5 items at change 5\n")

    status, output = run("restore", name, tmp_path / "new")
    assert status == 0, output
    assert output.splitlines()[1] == f"{tmp_path / 'new'} is shard 0 of 1: start index_svc on it"
    assert run("verify", tmp_path / "new")[0] == 0


def test_damage_is_reported_with_exit_status_1(path: Path) -> None:
    """A damaged item is named; a store that cannot be read at all is reported as such."""
    overwrite(path, "items", item_key("scenes", "c"), b"not a record at all")
    status, output = run("verify", path)
    assert status == 1
    assert "scenes/c" in output
    assert "1 items: ingest them again" in output

    data = bytearray((path / DATA_NAME).read_bytes())
    data[2 * 4096 :] = bytes(len(data) - 2 * 4096)
    (path / DATA_NAME).write_bytes(data)
    status, output = run("verify", path)
    assert status == 1
    assert f"{path} is damaged; restore it from a backup" in output


def test_a_store_can_be_grown(path: Path) -> None:
    """The limit lies next to the store for its writer to read."""
    status, output = run("grow", path, "2")
    assert (status, output.splitlines()[0]) == (0, f"{path} may grow to 2 GiB")
    assert "INDEX_STORE_MAP_BYTES" in output  # whose default is in force

    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    assert store.env.map_bytes() == 2 << 30
    store.close()
