"""The record of a job: what is sent again, and what is not even read."""

import json
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
from tandem.errors import ImageUnreadable, ModelUnavailable

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
        self.refused: set[str] = set()
        self.index = fake._servicer._index
        self._store = self.index.store
        self.index.store = self.store  # type: ignore[method-assign]

    def store(self, index_id: str, items: Sequence[IncomingItem]) -> list[IngestOutcome]:
        self.sent += [each.item_id for each in items]
        self.first_is_sent.set()
        assert self.may_store.wait(60)
        if self.errors:
            raise self.errors.pop()
        good = [each for each in items if each.item_id not in self.refused]
        stored = {each.item_id: each for each in self._store(index_id, good)}
        refusal = ImageUnreadable(why="it is cut off")
        return [stored.get(n.item_id, IngestOutcome(n.item_id, refusal)) for n in items]

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
def _photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """100 pictures, of which each tenth has a caption, whose files may be trusted at once."""
    monkeypatch.setattr("tandem.cli.ingest.sent_items._SETTLED_SECONDS", 0.0)
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

    write(photos / "0/000.jpg", "edited")
    write(photos / "1/001.jpg", "picture A", LONG_AGO + 1)
    write(photos / "2/002.jpg", "picture 2", LONG_AGO + 1)  # Only touched.
    write(photos / "3/010.txt", "another caption")
    told.index.remove(ItemsRemoval(index_id="photos", item_ids=["4/004"]))
    said = run("ingest", photos, told).output
    assert told.taken() == ["0/000", "1/001", "3/010#en-0", "4/004"]
    assert len(read) == 4, "not the picture of another caption"
    assert "photos has lost 1 items, which are stored again" in said

    run("ingest", photos, told)
    assert (told.taken(), len(read)) == ([], 4)


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


def test_what_is_refused_is_a_source(photos: Path, told: Told, tmp_path: Path) -> None:
    """Refused by the server or not readable: named once, and tried again alone."""
    told.refused = {"1/001"}
    (photos / "2/002.jpg").unlink()
    (photos / "2/002.jpg").symlink_to("/etc/hostname")
    job = tmp_path / "job"
    options = "--job", str(job), "--on-error", "skip"

    first = run("ingest", photos, told, *options, "--json", status=1)
    events = [json.loads(line) for line in first.stdout.splitlines()]
    assert [each["item_id"] for each in events if each.get("event") == "refused"] == ["1/001"]
    assert {"event": "progress", "done_count": 88, "total_count": 100} in events
    assert events[-1]["stored_count"] == 108
    again = run("ingest", photos, told, *options)
    source = f"refused:{job.with_suffix('.refused.jsonl')}"
    assert (
        "2 could not be stored (IMAGE_UNREADABLE 1, picture outside the corpus 1)" in again.stderr
    )
    assert f"tandem ingest {source}" in again.stderr

    told.refused = set()
    (photos / "2/002.jpg").unlink()
    write(photos / "2/002.jpg", "picture 2")
    write(photos / "3/003.jpg", "not asked for now")
    told.taken()
    run("ingest", source, told, *options)  # type: ignore[arg-type]
    assert told.taken() == ["1/001", "2/002"]
    run("ingest", photos, told, *options)
    assert told.taken() == ["3/003"]
