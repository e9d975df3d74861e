"""`tandem shard`: verify, backup, restore and grow, as typed."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item, upserts_of
from tests.support.item_store.stored_values import overwrite
from tests.support.object_store.faulty_s3 import faulty_s3
from tests.support.object_store.moto_server import s3_environment

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


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
    assert re.fullmatch(rf"file://{tmp_path}/backups/shard-0-of-1/[0-9a-f]{{32}}/000001.json", name)

    assert run("verify", name) == (0, f"{name} is sound: 5 items at change 5\n")

    status, output = run("restore", name, tmp_path / "new")
    assert status == 0, output
    assert output.splitlines()[1] == f"{tmp_path / 'new'} is shard 0 of 1: start index_svc on it"
    assert run("verify", tmp_path / "new")[0] == 0


def test_the_pages_commands_back_up_to_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run one after the other against a server of S3, and print what the page shows."""
    section = PAGE.read_text().split("## To an object store")[1].split("\n### By call")[0]
    lines = [
        line
        for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL)
        for line in block.splitlines()
    ]
    [shown_id] = set(re.findall(r"[0-9a-f]{32}", section))
    monkeypatch.chdir(tmp_path)
    store = ItemStore.open(Path(".tandem/shard-0"), 0, 2)
    for write in upserts_of([text_item(f"t{n}", n) for n in range(500)]):
        store.apply([write])
    store.close()
    with faulty_s3() as server:
        for name, value in s3_environment(server.endpoint).items():
            monkeypatch.setenv(name, value)
        printed: list[str] = []
        for line in lines:
            if not line.startswith("$ tandem shard "):
                assert comparable(printed.pop(0)) == comparable(line)
                continue
            assert printed == []
            if len(server.objects) == 2 and " backup " in line:
                store = ItemStore.open(Path(".tandem/shard-0"), 0, 2)
                store.apply(upserts_of([text_item(f"t{n}", 1000 + n) for n in range(50)]))
                store.close()
            status, output = run(
                *line.removeprefix("$ tandem shard ")
                .replace(shown_id, next(iter(server.objects), "//").split("/")[2])
                .split()
            )
            assert status == 0, output
            printed = output.splitlines()
        assert printed == []


def comparable(line: str) -> str:
    """Returns the line without numbers and the id of the store."""
    return re.sub(r"[0-9a-f]{32}|(?<!shard )(?<!shard-)\b\d{1,3}(,\d{3})*\b", "…", line)


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
