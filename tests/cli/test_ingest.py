"""`tandem ingest` of what lies on disk, as far as it goes before a server judges it."""

import asyncio
import io
import signal
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.cli.corpora.corpora import index_of
from tandem.contract.content import MAX_IMAGE_BYTES
from tandem.contract.filtering.attribute_wire import attributes_from_proto
from tandem.contract.identifiers import check_index_id
from tandem.contract.regions import regions_from_proto
from tandem.corpus.emoji import open_drawings
from tandem.corpus.readers.image_sources import MAX_READ_BYTES
from tandem.corpus.scenes.scene import Layout
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.demo_model import DEMO_NOTE
from tandem.modeling.export.export_manifest import checkpoint_fingerprint
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import MODEL, all_stored, search_server
from tests.support.grid import drawn
from tests.support.pictures.large_jpegs import phone_jpeg
from tests.support.pictures.pictures import encoded, plain

PICTURE = encoded(plain(), "PNG")


@pytest.fixture
def pets(tmp_path: Path) -> str:
    """Four pictures, of which the second is missing and the third is damaged."""
    for name, picture in (("a", PICTURE), ("b", None), ("c", b"damaged"), ("d[red]", PICTURE)):
        (tmp_path / f"{name}.txt").write_text(f"caption of {name}")
        if picture is not None:
            (tmp_path / f"{name}.png").write_bytes(picture)
    return f"folder:{tmp_path}"


@pytest.fixture
def complete(pets: str) -> str:
    """The same without the one that is missing."""
    Path(pets.removeprefix("folder:"), "b.txt").unlink()
    return pets


async def damaged_refused(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    response = await all_stored(request)
    for item, result in zip(request.items, response.results, strict=True):
        if item.content.image == b"damaged" or "[" in item.item_id:
            result.error.reason = error_reason_pb2.ERROR_REASON_IMAGE_UNREADABLE
            result.error.message = "the image cannot be read"
    return response


async def run(*arguments: str, refusing: bool = False) -> tuple[Result, list[str]]:
    """Returns what the command did, and the ids that the server was sent."""
    async with search_server(ingest=damaged_refused if refusing else all_stored) as (address, told):
        command = ["ingest", *arguments, "--split", "all", "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
        return result, [item.item_id for each in requests for item in each.items]


async def test_items_carry_the_attributes_of_the_corpus() -> None:
    async with search_server() as (address, told):
        command = ["ingest", "scenes", "--count", "8", "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]

    assert result.exit_code == 0, result.output
    items = [item for request in requests for item in request.items]
    languages = {"en", "de", "fr", "cs"}
    for item in items:
        attributes = attributes_from_proto(item.attributes)
        assert attributes["split"] == "test"
        assert attributes["drawing_count"] in range(1, 20)
        assert attributes["layout"] in {layout.name.lower() for layout in Layout}
        style, language = attributes["style"], attributes["language"]
        assert isinstance(style, tuple)
        assert style
        assert set(style) <= set(open_drawings().styles)
        if item.content.WhichOneof("data") == "image":
            assert language == tuple(sorted(languages))
        else:
            assert language in languages
            assert f"-{language}-" in item.item_id


@pytest.mark.parametrize("on_error", ["stop"])
async def test_server_refusals_are_reported_item_by_item(complete: str, on_error: str) -> None:
    result, _ = await run(complete, "--on-error", on_error, refusing=True)

    assert result.exit_code == 1
    assert "3 items stored, 3 refused" in result.output
    for item_id in ("c", "d[red]", "d[red]#en-0"):
        assert f"{item_id}: IMAGE_UNREADABLE: the image cannot be read" in result.output
    assert "skipped" not in result.output


async def ingested(*arguments: str) -> tuple[Result, list[str]]:
    """Ingests like `run`, without naming a split, as a first-time user types it."""
    async with search_server() as (address, told):
        command = ["ingest", *arguments, "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
        return result, [item.item_id for each in requests for item in each.items]


async def test_a_folder_of_plain_pictures_is_ingested_by_its_path(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.JPG", "c.bmp", "d.bmp", "e.gif"):
        (tmp_path / name).write_bytes(PICTURE)

    result, sent = await ingested(str(tmp_path))

    assert result.exit_code == 0, result.output
    assert sent == ["a", "b"]
    assert f"ingest into {index_of(str(tmp_path))}: begins, 2 pictures" in result.stderr
    assert "passed over: 3 (.bmp 2, .gif 1)" in result.stderr
    assert f".bmp: {tmp_path}/c.bmp, {tmp_path}/d.bmp" in result.stderr
    assert "pictures without captions: 2" in result.stderr


@pytest.mark.parametrize(
    ("folder", "index_id"),
    [
        ("My Photos (2026)", "my-photos-2026"),
        ("Été à Nîmes", "ete-a-nimes"),
        ("写真", "pictures"),
        ("a" * 70, "a" * 63),
    ],
)
@pytest.mark.parametrize("form", drawn(["{}", "list:{}/a.tsv"], "own folder"))
def test_an_own_folder_goes_to_an_index_of_its_own_name(
    tmp_path: Path, folder: str, index_id: str, form: str
) -> None:
    (tmp_path / folder).mkdir()

    assert check_index_id(index_of(form.format(tmp_path / folder))) == index_id


async def test_the_demos_model_is_named_where_it_reads_other_pictures(
    complete: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = checkpoint_fingerprint(CheckpointFiles.read(default_checkpoint()), Precision.FP32)
    monkeypatch.setattr(
        "tests.support.client.search_server.MODEL", replace(MODEL, fingerprint=fingerprint)
    )

    said = [(await run(name, "--count", "4"))[0].stderr for name in (complete, "scenes")]

    assert [DEMO_NOTE in " ".join(each.split()) for each in said] == [True, False]


async def test_one_bad_record_of_each_kind_ends_no_ingest(tmp_path: Path) -> None:
    """A lone surrogate, a picture over any limit, one missing, one twice: each is counted."""
    files = {
        "a.jpg": PICTURE,
        "a.json": b'{"caption": "a cup"}',
        "half.jpg": PICTURE,
        "half.json": b'{"caption": "half \\ud83d"}',
        "large.jpg": PICTURE + bytes(MAX_READ_BYTES),
        "missing.txt": b"no picture",
        "text.jpg": PICTURE,
        "text.txt": b"\xff",
        "twice.jpg": PICTURE,
        "twice.png": PICTURE,
        "z.jpg": PICTURE,
    }
    with tarfile.open(tmp_path / "test-0.tar", "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

    result, sent = await ingested(f"webdataset:{tmp_path}", "--on-error", "skip")

    assert result.exit_code == 0, result.output
    assert sent == ["test-0/a", "test-0/a#en-0", "test-0/z"]
    assert "3 items stored, 0 refused" in result.stdout
    assert "skipped records: 5 (" in result.stderr
    assert "caption not readable 2" in result.stderr
    for name in ("half", "large", "missing", "text", "twice"):
        assert f"test-0.tar: {name}" in result.stderr


async def test_a_photograph_over_every_limit_is_sent_scaled_down(tmp_path: Path) -> None:
    """Of 200 megapixels and more bytes than a server takes; a small one is sent as it is."""
    (tmp_path / "a.jpg").write_bytes(phone_jpeg(16384, 12288, quality=94))
    (tmp_path / "b.png").write_bytes(PICTURE)
    received = {}

    async def answer(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        received.update({item.item_id: item.content.image for item in request.items})
        return await all_stored(request)

    async with search_server(ingest=answer) as (address, _):
        command = ["ingest", str(tmp_path), "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)

    assert result.exit_code == 0, result.output
    assert "scaled down, as they are over 33,554,432 bytes: 1;" in result.stderr
    assert 10**5 < len(received["a"]) < MAX_IMAGE_BYTES < (tmp_path / "a.jpg").stat().st_size
    assert received["b"] == PICTURE


@pytest.mark.parametrize("on_error", ["skip"])
async def test_an_ingest_of_nothing_fails(tmp_path: Path, on_error: str) -> None:
    with tarfile.open(tmp_path / "test-0.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a.bmp"))
    result, sent = await ingested(f"webdataset:{tmp_path}", "--on-error", on_error)
    assert (result.exit_code, sent) == (1, [])
    assert "nothing was read; passed over: 1 (.bmp 1)" in str(result.exception)

    (tmp_path / "a.txt").write_text("no picture")
    (tmp_path / "b.jpg").symlink_to("/etc/hostname")
    result, sent = await ingested(f"folder:{tmp_path}", "--on-error", on_error)
    assert (result.exit_code, sent) == (1, [])


async def test_ctrl_c_says_what_is_stored_and_that_it_may_be_repeated() -> None:
    first_is_stored = asyncio.Event()

    async def only_the_first(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        if first_is_stored.is_set():
            await asyncio.Event().wait()
        first_is_stored.set()
        return await all_stored(request)

    async with search_server(ingest=only_the_first) as (address, _):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tandem.cli", "ingest", "scenes", "--count", "40"),
            *("--address", address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await asyncio.wait_for(first_is_stored.wait(), 60)
            process.send_signal(signal.SIGINT)
            said, _ = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()

    assert process.returncode == 130
    assert "items are stored and stay; the same command again stores the rest" in said.decode()
    assert "Traceback" not in said.decode()


@pytest.fixture
def detected(tmp_path: Path) -> Path:
    """A detector's files of the pictures a and c."""
    folder = tmp_path / "detected"
    folder.mkdir()
    for number, name in enumerate("ac"):
        np.savez(
            folder / f"{name}.npz",
            x=np.full((2, 2048), number, np.float32),
            bbox=np.array([[0, 0, 50, 100], [0, 0, 200, 50]], np.float32),
            num_bbox=np.array(2),
            image_w=np.array(200),
            image_h=np.array(100),
        )
    return folder


async def test_regions_are_sent_instead_of_pictures(pets: str, detected: Path) -> None:
    """No picture is read: one is damaged. A record has no regions, a text no picture."""
    async with search_server(ingest=all_stored) as (address, told):
        command = ["ingest", pets, "--split", "all", "--address", address]
        command += ["--regions", str(detected), "--on-error", "skip"]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        items = {
            item.item_id: item.content
            for request in told.requests
            if isinstance(request, pb.IngestItemsRequest)
            for item in request.items
        }

    assert result.exit_code == 0, result.output
    assert "skipped records: 1 (no regions 1)" in " ".join(result.output.split())
    sent = regions_from_proto(items["c"].regions)
    assert (sent.region_count, sent.feature_width) == (2, 2048)
    assert (sent.image_width, sent.image_height) == (200, 100)
    assert np.frombuffer(sent.features, "<f2").tolist() == [1] * 4096
    assert np.frombuffer(sent.boxes, "<f4").tolist() == [0, 0, 50, 100, 0, 0, 200, 50]
    assert {name for name, each in items.items() if each.HasField("text")} == {"a#en-0", "c#en-0"}
