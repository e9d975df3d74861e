"""The record of a job: what is sent again, and what is not even read."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.client.testing import FakeServer
from tandem.contract.search.answer import IngestOutcome
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.item_changes import ItemsRemoval
from tandem.errors import ModelUnavailable

LONG_AGO = 1_700_000_000


class Told:
    """A fake server, and the ids that it was sent."""

    def __init__(self, fake: FakeServer) -> None:
        self.address = fake.address
        self.sent: list[str] = []
        self.may_store = threading.Event()
        self.may_store.set()
        self.first_is_sent = threading.Event()
        self.errors: list[Exception] = []
        self.index = fake._servicer._index
        self._store = self.index.store
        self.index.store = self.store  # type: ignore[method-assign]

    def store(self, index_id: str, items: Sequence[IncomingItem]) -> list[IngestOutcome]:
        self.sent += [each.item_id for each in items]
        self.first_is_sent.set()
        assert self.may_store.wait(60)
        if self.errors:
            raise self.errors.pop()
        return self._store(index_id, items)

    def taken(self) -> list[str]:
        """Returns the ids that were sent since the last call."""
        taken, self.sent = self.sent, []
        return taken

    @property
    def ids(self) -> set[str]:
        """Of the items that are stored."""
        return set(self.index.items("photos"))


@pytest.fixture(name="told")
def _told() -> Iterator[Told]:
    with FakeServer() as fake:
        yield Told(fake)


@pytest.fixture(name="photos")
def _photos(tmp_path: Path) -> Path:
    """100 pictures, of which each tenth has a caption, none of them of the last seconds."""
    folder = tmp_path / "photos"
    for number in range(100):
        write(folder / f"{number % 7}/{number:03}.jpg", f"picture {number}")
        if number % 10 == 0:
            write(folder / f"{number % 7}/{number:03}.txt", f"caption {number}")
    return folder


def write(path: Path, text: str, mtime: float = LONG_AGO) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (mtime, mtime))


def run(command: str, source: Path, told: Told, *more: str, status: int = 0) -> Result:
    arguments = [command, str(source), "--address", told.address, *more]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status, result.output + repr(result.exception)
    return result


def test_a_second_ingest_reads_only_what_changed(
    photos: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("ingest", photos, told)
    assert len(told.taken()) == 110
    read: list[Path] = []
    plain_read = Path.read_bytes

    def noted_read(path: Path) -> bytes:
        read.append(path)
        return plain_read(path)

    monkeypatch.setattr(Path, "read_bytes", noted_read)

    run("ingest", photos, told)
    assert (told.taken(), read) == ([], [])

    write(photos / "0/000.jpg", "edited")  # Another size, and the same time.
    write(photos / "1/001.jpg", "picture A", LONG_AGO + 1)
    write(photos / "2/002.jpg", "picture 2", LONG_AGO + 1)  # Only touched.
    write(photos / "3/010.txt", "another caption")
    told.index.remove(ItemsRemoval(index_id="photos", item_ids=["4/004"]))
    said = run("ingest", photos, told).output
    assert told.taken() == ["0/000", "1/001", "3/010#en-0", "4/004"]
    assert len(read) == 5
    assert "photos no longer has 1 items that were stored" in said

    run("ingest", photos, told)
    assert (told.taken(), len(read)) == ([], 5)


def test_a_kill_wastes_two_batches_at_most(photos: Path, told: Told) -> None:
    """The same command resumes, however often, and a second process is refused meanwhile."""
    for kill_number in range(2):
        told.may_store.clear()
        told.first_is_sent.clear()
        process = subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", "ingest", photos, "--address", told.address],
        )
        try:
            assert told.first_is_sent.wait(60)
            if kill_number == 0:
                busy = run("ingest", photos, told, status=1)
                assert "another process works with" in str(busy.exception)
        finally:
            process.kill()
            process.wait()
            told.may_store.set()

    run("ingest", photos, told)

    assert len(told.ids) == 110
    assert 110 <= len(told.taken()) <= 110 + 2 * 64


def test_a_server_that_comes_back_is_waited_for(photos: Path, told: Told) -> None:
    told.errors += [ModelUnavailable(model="image_encoder", why="it restarts")]

    said = run("ingest", photos, told).output

    assert len(told.ids) == 110
    assert "110 items stored, 0 refused" in said


def test_a_record_is_kept_where_it_can_be(
    photos: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))

    said = run("ingest", photos, told).output
    assert "the next run cannot resume here" in said
    run("ingest", photos, told, "--job", str(tmp_path / "job"))
    assert len(told.taken()) == 220
    run("ingest", photos, told, "--job", str(tmp_path / "job"))
    assert told.taken() == []
    run("ingest", photos, told, "--job", str(photos / "0/000.jpg"), status=1)
