"""Datasets are stored once and whole, whatever is killed."""

import io
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import ray.data
from PIL import Image
from ray.exceptions import RayTaskError
from tandem_ray import Destination, ingest

from tandem.client import Access, Client, Modality
from tandem.errors import ImageUnreadable, IndexNotFound

PICTURE_COUNT = 480
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def picture(number: int) -> bytes:
    """A picture that no other number has."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (number % 251, number // 251, 99)).save(file, "PNG")
    return file.getvalue()


def pictures_in(folder: Path, count: int) -> Path:
    """A folder of pictures in two folders."""
    for number in range(count):
        path = folder / str(number % 2) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    return folder


def stored_count(sdk: Client, index_id: str) -> int:
    """The pictures of an index."""
    try:
        return sdk.describe_index(index_id=index_id).item_count(Modality.IMAGE)
    except IndexNotFound:
        return 0


def written_rows(path: Path) -> None:
    """Three rows, of which one is no picture and one has no colour."""
    shapes = [picture(1), b"no picture", picture(2)]
    colours = ["red", "red", None]
    table = {"key": ["a", "b", "c"], "shape": shapes, "colour": colours, "size": [0, 1, 2]}
    pq.write_table(pa.table(table), path)


def commands_of_the_readme() -> list[str]:
    """What it gives the command, in order."""
    found = re.findall(r"^python -m tandem_ray (.+)$", README, re.MULTILINE)
    assert len(found) == 2
    return found


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    children = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/status")
        if re.search(rf"^PPid:\s+{pid}$", text(path), re.MULTILINE)
    ]
    return children + [below for child in children for below in descendants(child)]


def title(pid: int) -> str:
    """How a process calls itself; empty if it is gone."""
    return text(Path(f"/proc/{pid}/cmdline"))


def is_sender(pid: int) -> bool:
    """Whether a worker of Ray sends just now."""
    return title(pid).startswith("ray::MapBatches(send)")


def text(path: Path) -> str:
    """A file of a process; empty if that is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_folder_is_stored_by_the_command_of_the_readme(command: Any, sdk: Client) -> None:
    """Ids are those of `tandem ingest`; what came into the folder since is sent alone."""
    line = commands_of_the_readme()[0]
    folder = pictures_in(command.folder / "photos", 6)
    first = command.run(line)
    (folder / "1" / "new.png").write_bytes(picture(1000))
    (folder / "1" / "0003.png").write_bytes(b"not read again")
    second = command.run(line)
    (folder / "1" / "0003.jpg").write_bytes(picture(1001))
    twins = command.run(line)
    found = sdk.search(picture(3), index_id="photos", target_modality=Modality.IMAGE)
    [new] = sdk.search("cup", index_id="photos", where="file = 1/new.png").items

    assert first[:2] == (0, "6 items stored, 0 refused\n"), first[2]
    assert second[:2] == (0, "7 items stored, 0 refused\n"), second[2]
    assert stored_count(sdk, "photos") == 7
    assert twins[0] == 1
    assert "would be one item" in twins[2]
    assert (found.items[0].item_id, new.item_id) == ("1/0003", "1/new")


def test_refusals_are_kept_by_the_command_of_the_readme(command: Any, sdk: Client) -> None:
    """A run that sends nothing new still names them, and exits with 1."""
    line = commands_of_the_readme()[1]
    written_rows(command.folder / "rows.parquet")
    runs = [command.run(line) for _ in range(2)]
    [item] = sdk.search("cup", index_id="rows", where="size = 0").items

    for status, out, err in runs:
        assert (status, out) == (1, "2 items stored, 1 refused\n"), err
        assert "'b': " in err
    assert item.item_id == "a"


def test_nothing_is_lost_or_doubled_by_kills(command: Any, sdk: Client) -> None:
    """A worker's death is Ray's to heal, and the driver's that of the same command."""
    pictures_in(command.folder / "many", PICTURE_COUNT)
    line = "many --index ray-kills --state ray-state --rows-per-task 32 --streams 2"
    process = command.start(line)
    started: list[int] = []
    for count, is_driver in ((64, False), (192, True)):
        while stored_count(sdk, "ray-kills") < count:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        started += descendants(process.pid)
        if is_driver:
            process.kill()
            process.communicate()
        else:
            while not (senders := [pid for pid in descendants(process.pid) if is_sender(pid)]):
                assert process.poll() is None
            os.kill(senders[0], signal.SIGKILL)
    before = stored_count(sdk, "ray-kills")
    status, out, err = command.run(line)
    # Two agents of Ray outlive a killed driver.
    for pid in started:
        if title(pid).startswith("ray::"):
            os.kill(pid, signal.SIGKILL)

    assert before < PICTURE_COUNT
    assert (status, out) == (0, f"{PICTURE_COUNT} items stored, 0 refused\n"), err
    assert stored_count(sdk, "ray-kills") == PICTURE_COUNT
    # The last run has left out what the first one noted.
    assert "CheckpointFilter" in err


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Ray in this process."""
    ray.init(include_dashboard=False)
    yield
    ray.shutdown()


def test_a_dataset_is_stored_by_the_program_of_the_readme(
    cluster: None,
    system: dict[str, Any],
    sdk: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Columns that a map adds are attributes."""
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    # Ray's workers work where Ray was started.
    program = program.replace("rows.parquet", str(tmp_path / "rows.parquet"))
    monkeypatch.setenv("TANDEM_TOKEN", system["token"])
    monkeypatch.setenv("TANDEM_AUTHORITY_FILE", system["authority_file"])
    written_rows(tmp_path / "rows.parquet")
    names: dict[str, Any] = {}
    exec(program.replace("127.0.0.1:7400", system["address"]), names)
    found = sdk.search("cup", index_id="spring", where="batch = spring").items
    [refused] = names["report"].refused

    assert names["report"].stored_count == len(found) == 2
    assert (refused.item_id, type(refused.error)) == ("b", ImageUnreadable)


def test_a_server_that_stays_away_fails_the_run_by_name(cluster: None, tmp_path: Path) -> None:
    """Rows are not noted as sent."""
    written_rows(tmp_path / "rows.parquet")
    place = Destination(
        address="127.0.0.1:1",
        index_id="away",
        id_column="key",
        content_column="shape",
        access=Access(),
        wait_seconds=0.0,
    )
    rows = ray.data.read_parquet(str(tmp_path / "rows.parquet"))
    with pytest.raises(RayTaskError, match=r"ServiceUnavailable: .*127\.0\.0\.1:1"):
        ingest(rows, place, state=str(tmp_path / "state"))

    assert not list((tmp_path / "state" / "away" / "checkpoint").glob("*"))
