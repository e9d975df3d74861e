"""The ingest of `tandem up --ingest`: what it refuses at once, what it says, and how it ends."""

import asyncio
from pathlib import Path

import pytest

from tandem.cli.ingest.corpus_ingest import CorpusIngest
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import all_stored, search_server
from tests.support.pictures.pictures import encoded, plain

PICTURE = encoded(plain(), "PNG")


@pytest.fixture(name="photos")
def _photos(tmp_path: Path) -> Path:
    """Two pictures, the second of which is in a folder of its own."""
    folder = tmp_path / "my photos"
    (folder / "2026").mkdir(parents=True)
    (folder / "a.png").write_bytes(PICTURE)
    (folder / "2026/b.png").write_bytes(PICTURE)
    return folder


def ended(ingest: CorpusIngest) -> None:
    """Waits until the ingest has ended and has said so."""
    assert ingest._watch is not None
    ingest._watch.join(60)
    assert not ingest._watch.is_alive()


async def test_it_ingests_and_says_how_to_search(
    photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with search_server() as (address, told):
        with CorpusIngest(str(photos), "photos") as ingest:
            ingest.start(address)
            await asyncio.to_thread(ended, ingest)

    said = capfd.readouterr()
    requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    assert [item.item_id for each in requests for item in each.items] == ["2026/b", "a"]
    assert {each.index_id for each in requests} == {"photos"}
    assert "2 items stored, 0 refused" in said.out
    assert 'search it by: tandem search "WORDS" --index photos --address localhost:' in said.out
    assert "pictures without captions: 2" in said.err


async def test_what_cannot_be_read_is_said_and_the_rest_is_stored(
    photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command to repeat is one that a shell can read."""
    (photos / "c.png").symlink_to("/etc/hostname")
    (photos / "d.txt").write_text("no picture")

    async with search_server() as (address, _):
        with CorpusIngest(str(photos), "photos") as ingest:
            ingest.start(address)
            await asyncio.to_thread(ended, ingest)
        said = capfd.readouterr()
        assert "2 items stored, 0 refused" in said.out
        assert "skipped records: 1 (picture outside the corpus 1)" in said.err
        assert "text without a picture 1" in said.err

    with CorpusIngest(str(photos), "photos") as ingest:
        ingest.start(address)  # The server has stopped.
        await asyncio.to_thread(ended, ingest)
    said = capfd.readouterr()
    assert "nothing listens at" in said.err
    assert "the server continues; try again by: tandem ingest '" in said.out
    assert "/my photos' --index photos --address localhost:" in said.out


async def test_a_stop_ends_it_and_says_what_is_stored(
    photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and no word that something has failed."""
    is_asked = asyncio.Event()

    async def never(_: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with search_server(ingest=never) as (address, _):
        with CorpusIngest(str(photos), "photos") as ingest:
            ingest.start(address)
            await asyncio.wait_for(is_asked.wait(), 60)
            await asyncio.to_thread(ingest.stop)
            assert ingest._process is not None
            assert ingest._process.returncode is not None

    said = capfd.readouterr()
    assert "stopped: 0 items are stored and stay; the same command again stores" in said.err
    assert "Traceback" not in said.err
    assert "try again" not in said.out


@pytest.mark.parametrize(
    ("corpus", "why"),
    [
        ("empty", "empty has no picture of split 'test'"),
        ("-x", "no corpus '-x'"),
    ],
)
def test_a_corpus_without_a_picture_is_refused_at_once(
    corpus: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=why):
        CorpusIngest(corpus, "photos")


async def test_a_folder_named_like_an_option_is_ingested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an argument of the child too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "--count").mkdir()
    (tmp_path / "--count/a.png").write_bytes(PICTURE)

    async with search_server(ingest=all_stored) as (address, told):
        with CorpusIngest("--count", "photos") as ingest:
            ingest.start(address)
            await asyncio.to_thread(ended, ingest)

    requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    assert [item.item_id for each in requests for item in each.items] == ["a"]
