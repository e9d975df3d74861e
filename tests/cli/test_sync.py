"""`tandem sync`: the index is equal to the folder, and what only moved is not sent."""

import errno
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.cli.ingest.job_record import JobRecord
from tandem.corpus.records import FileState
from tandem.errors import ModelUnavailable
from tests.cli.test_jobs import LONG_AGO, Told, _photos, _told, run, write

__all__ = ["_photos", "_told"]


def contents(told: Told) -> dict[str, str]:
    """Returns what the index has, by id."""
    found = {}
    for item_id, stored in told.index.items("photos").items():
        content = stored.content
        found[item_id] = getattr(content, "text", None) or content.image_bytes.decode()
    return found


def on_disk(folder: Path) -> dict[str, str]:
    """Returns what a folder has, by id."""
    found = {}
    for path in filter(Path.is_file, folder.rglob("*")):
        stem = str(path.relative_to(folder).with_suffix(""))
        found[stem if path.suffix.lower() == ".jpg" else f"{stem}#en-0"] = path.read_text()
    return found


def test_the_index_becomes_equal_to_a_folder_that_changes(photos: Path, told: Told) -> None:
    """Renamed folders and files, swaps, chains, copies, edits and removals, in ten rounds."""
    rng = random.Random(50)
    run("sync", photos, told)
    for number in range(10):
        files = sorted(photos.rglob("*.[jJ][pP][gG]"))
        for _ in range(rng.randrange(1, 6)):
            one, two = rng.sample(sorted(photos.rglob("*.[jJ][pP][gG]")), 2)
            match rng.randrange(8):
                case 0:
                    one.parent.rename(photos / f"folder {rng.random()}")
                case 1:
                    third = one.with_name("third")
                    one.rename(third), two.rename(one), third.rename(two)
                case 2:
                    one.rename(two)
                case 3:
                    shutil.copy2(one, one.with_name(f"copy {rng.random()}.jpg"))
                case 4:
                    write(one, f"edit {rng.random()}")
                case 5:
                    one.unlink()
                case 6:
                    one.rename(one.with_name(one.name.swapcase()))
                case 7:
                    write(one.with_suffix(".txt"), f"caption {rng.random()}", LONG_AGO + number)
        known = set(contents(told).values())
        for path in photos.rglob("*.txt"):
            if not (path.with_suffix(".jpg").exists() or path.with_suffix(".JPG").exists()):
                path.unlink()
        told.taken()
        run("sync", photos, told, "--max-removed-share", "1")

        assert contents(told) == on_disk(photos), number
        sent = [contents(told)[each] for each in told.taken()]
        swapped = [each for each in sent if each in known]
        assert len(swapped) <= 5, "only one of a circle is encoded"
        run("sync", photos, told)
        assert told.taken() == []
    assert files


def test_a_renamed_folder_is_not_sent(photos: Path, told: Told) -> None:
    run("sync", photos, told)
    told.taken()
    (photos / "0").rename(photos / "zero")
    (photos / "1/001.jpg").unlink()
    write(photos / "new.jpg", "new")
    write(photos / "2/002.jpg", "edited")

    plan = run("sync", photos, told, "--dry-run").stdout
    assert told.taken() == []
    assert "1 added: new\n1 updated: 2/002\n17 renamed: 0/000 → zero/000, " in plan
    assert "1 removed: 1/001\n" in plan
    lines = run("sync", photos, told, "--json").stdout.splitlines()

    assert told.taken() == ["2/002", "new"]
    assert contents(told) == on_disk(photos)
    assert {json.loads(line).get("event") for line in lines} >= {"plan", None}
    plan_line, last = run("sync", photos, told, "--json").stdout.splitlines()
    assert (json.loads(plan_line)["event"], json.loads(last)["stored_count"]) == ("plan", 0)
    stored = told.index.items("photos")["zero/000"].item
    assert stored.attributes["file"] == "zero/000.jpg"


@pytest.mark.parametrize("command", ["sync", "ingest"])
def test_what_is_left_of_a_captioned_picture_is_sent(
    photos: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A kill between two batches leaves a picture without its caption, or the reverse."""
    monkeypatch.setattr("tandem.cli.ingest.sent_items._SETTLED_SECONDS", 0.0)
    record = tmp_path / "record.sqlite"
    for name in ("1/001", "2/002"):
        write(photos / f"{name}.txt", f"caption of {name}")
    run(command, photos, told, "--job", str(record))
    left = ["1/001", "2/002#en-0"]
    for item_id in left:
        told.index._indexes["photos"].pop(item_id)
    with JobRecord(record) as job:
        job.forget(left)
    told.taken()

    run(command, photos, told, "--job", str(record))

    assert sorted(told.taken()) == left
    assert contents(told) == on_disk(photos)


def test_a_picture_with_a_renamed_caption_is_stored(photos: Path, told: Told) -> None:
    """It moved and changed, and its caption only moved."""
    run("sync", photos, told)
    told.taken()
    (photos / "0").rename(photos / "zero")
    write(photos / "zero/000.jpg", "edited")

    run("sync", photos, told)

    assert told.taken() == ["zero/000"]
    assert contents(told) == on_disk(photos)


@pytest.mark.parametrize("command", ["sync", "ingest"])
def test_other_attributes_are_neither_read_nor_sent(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """New prices of a table, and captions of a picture that is as it was."""
    monkeypatch.setattr("tandem.cli.ingest.sent_items._SETTLED_SECONDS", 0.0)
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.jpg", f"picture {name}")
    table = tmp_path / "photos.csv"
    rows = [("a", "10"), ("b", "20"), ("c", "30")]
    lines = ["id,image,text,price", *(f"{name},{name}.jpg,a {name},{cost}" for name, cost in rows)]
    table.write_text("\n".join(lines))
    source = f"table:{table}"
    run(command, source, told, "--index", "photos")  # type: ignore[arg-type]
    told.index._indexes["photos"]["b"].item.attributes["seen"] = True
    told.taken()
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it is read"))
    table.write_text("\n".join(lines).replace("20", "21").replace("a c,", "another c,"))

    run(command, source, told, "--index", "photos")  # type: ignore[arg-type]

    assert told.taken() == ["c#en-0"]
    attributes = told.index.items("photos")["b"].item.attributes
    assert (attributes["price"], attributes["seen"]) == (21, True)
    table.write_text("\n".join([*lines[:2], "b,b.jpg,a b,20,1", lines[3]]))
    run(command, source, told, "--index", "photos", "--on-error", "skip")  # type: ignore[arg-type]
    assert "b" in told.ids


@pytest.mark.parametrize("command", ["sync", "ingest"])
def test_of_rows_with_one_id_the_last_is_stored(tmp_path: Path, told: Told, command: str) -> None:
    """It is said, and the next run sends nothing; `tandem set` does the same."""
    table = tmp_path / "shop.csv"
    write(table, "id,text,price\na,a cup,1\nb,a jug,2\na,a red cup,3\n")
    options = "--index", "photos"
    for taken in (["b", "a"], []):
        said = run(command, table, told, *options).output
        assert "row with the id of a later one: a (" in " ".join(said.split())
        assert "2 rows" in said
        assert "pictures" not in said
        assert told.taken() == taken
    assert contents(told) == {"a": "a red cup", "b": "a jug"}
    write(table, "id,price\na,4\nb,5\na,6\n")

    said = run("set", table, told, *options).output

    assert "passed over: 1 (row with the id of a later one 1)" in said
    prices = {i: each.item.attributes["price"] for i, each in told.index.items("photos").items()}
    assert prices == {"a": 6, "b": 5}


def test_a_source_that_is_not_there_empties_no_index(
    photos: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone, empty, a part of it gone or not readable; unless it is allowed by a share."""
    run("sync", photos, told)
    all_ids = told.ids

    away = photos.rename(photos.with_name("away"))
    run("sync", photos, told, "--max-removed-share", "1", status=1)
    photos.mkdir()
    run("sync", photos, told, "--max-removed-share", "1", status=1)
    photos.rmdir()
    away.rename(photos)
    scandir = os.scandir

    def scanned(path: Path) -> Iterator[os.DirEntry[str]]:
        if path == photos / "0":
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr("tandem.corpus.readers.plain_file.os.scandir", scanned)
        said = run("sync", photos, told, "--max-removed-share", "1")
    assert "nothing is removed, because not every folder can be listed" in said.stderr
    assert told.ids == all_ids
    for name in "012":
        (photos / name).rename(photos.with_name(f"away{name}"))
    said = run("sync", photos, told, "--dry-run", status=1)
    assert "48 removed" in said.stdout
    said = run("sync", photos, told, status=1)
    assert "48 of 110 stored items would be removed" in str(said.exception)
    assert told.ids == all_ids
    run("sync", photos, told, "--max-removed-share", "0.5")
    assert len(told.ids) == 110 - 48


def test_what_a_restored_index_has_otherwise_is_stored_again(
    photos: Path, told: Told, tmp_path: Path
) -> None:
    """A shard that lacks an acknowledged write had another state put back; ids cannot tell."""
    own = "--job", str(tmp_path / "job.sqlite")
    run("sync", photos, told, *own)
    index, told.sent = told.index._indexes["photos"], []
    index["1/001"], index["0/000#en-0"] = index["2/002"], index["3/010#en-0"]
    index["4/004"].item.attributes["file"] = "another"
    run("sync", photos, told, *own)
    assert told.taken() == [], "it trusts the index while its tokens hold"
    with JobRecord(Path(own[1])) as job:
        job.keep("consistency tokens", "of another deployment")
        job.keep("model", "model-1")

    said = run("sync", photos, told, *own).output

    assert "photos is not as it was left, and its contents are compared" in said
    assert "photos is of the model fake-of-tandem-client-testing now, and was of model-1" in said
    assert sorted(told.taken()) == ["0/000#en-0", "1/001", "4/004"]
    assert contents(told) == on_disk(photos)
    assert "is of the model" not in run("sync", photos, told, *own).output


def test_items_of_other_sources_stay(photos: Path, told: Told, tmp_path: Path) -> None:
    write(tmp_path / "other/x.jpg", "x")
    run("ingest", tmp_path / "other", told, "--index", "photos")
    write(tmp_path / "other/1/001.jpg", "of the same name")
    run("ingest", tmp_path / "other", told, "--index", "photos")
    said = run("sync", photos, told).stdout
    assert "1 updated, of other sources: 1/001" in said
    assert "1 of other sources: x" in said
    assert "x" in told.ids

    told.errors += [ModelUnavailable(model="image_encoder", why="it restarts")]
    write(photos / "new.jpg", "new")
    run("sync", photos, told, "--others-removed")
    assert contents(told) == on_disk(photos)


def test_what_an_ingest_leaves_is_named_and_a_sync_removes_it(photos: Path, told: Told) -> None:
    """But not a caption that came back meanwhile."""
    run("ingest", photos, told)
    for name in ("0/000", "3/010"):
        (photos / f"{name}.txt").unlink()
    (photos / "1/001.jpg").unlink()
    said = run("ingest", photos, told).stderr
    assert f"3 stored items are no longer in {photos} and stay; tandem sync removes them" in said
    write(photos / "0/000.txt", "caption 0")

    run("sync", photos, told)

    assert contents(told) == on_disk(photos)


def test_a_changed_file_of_the_same_size_and_time_is_found_by_checksum(
    photos: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system keeps the time of a change, it is found without."""
    run("sync", photos, told)
    write(photos / "1/001.jpg", "picture A")
    run("sync", photos, told)
    assert contents(told) == on_disk(photos)

    def without_change_time(path: Path) -> FileState:
        stat = path.stat()
        return FileState(stat.st_size, stat.st_mtime_ns, 0)

    monkeypatch.setattr("tandem.corpus.readers.image_sources.file_state", without_change_time)
    run("sync", photos, told)
    write(photos / "1/001.jpg", "picture B")
    run("sync", photos, told)
    assert contents(told)["1/001"] == "picture A"
    run("sync", photos, told, "--checksum")
    assert contents(told) == on_disk(photos)
