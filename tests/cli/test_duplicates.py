"""`tandem ingest` and `tandem sync` with --duplicates."""

import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.client.testing import FakeServer
from tandem.corpus.scenes.records import scene_records


def picture(seed: int, size: tuple[int, int] = (400, 300)) -> Image.Image:
    """Returns a soft picture that has no like."""
    grid = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    return Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC)


def write(path: Path, image: Image.Image, quality: int = 95) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=quality)
    os.utime(path, (1_700_000_000, 1_700_000_000))


class Index:
    """What a fake server has, after a command."""

    def __init__(self, fake: FakeServer, source: Path) -> None:
        self.fake, self.source = fake, source
        self.client = Client(fake.address)

    def run(self, command: str, *options: str) -> str:
        arguments = [command, str(self.source), "--address", self.fake.address, *options]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return result.output

    @property
    def ids(self) -> list[str]:
        return [each.item_id for each in self.client.list_items(index_id="photos")]

    def named(self, item_id: str) -> list[str]:
        """Returns what a search by one of its names finds."""
        where = f"duplicates = {item_id!r}".replace("'", '"')
        return [each.item_id for each in self.client.list_items(index_id="photos", where=where)]


@pytest.fixture(name="index")
def _index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr("tandem.cli.ingest.sent_items._SETTLED_SECONDS", 0.0)
    photos = tmp_path / "photos"
    for number in range(6):
        write(photos / f"{number}.jpg", picture(number))
    (photos / "1.txt").write_text("a first one")
    with FakeServer() as fake:
        yield Index(fake, photos)


def add_copies(photos: Path) -> None:
    """Adds a copy, a smaller one, a compressed one and one without its margins."""
    (photos / "copy.jpg").write_bytes((photos / "0.jpg").read_bytes())
    write(photos / "small.png", picture(1).resize((100, 75)))
    write(photos / "poor.jpg", picture(2), quality=30)
    write(photos / "cut.jpg", picture(3).crop((20, 0, 400, 285)))
    (photos / "cut.txt").write_text("a cut one")


COPIES = {"copy": "0", "small": "1", "poor": "2", "cut": "3"}


@pytest.mark.parametrize("policy", ["skip", "link", "replace"])
def test_duplicates_are_left_out_and_change_places(index: Index, policy: str) -> None:
    index.run("ingest", "--duplicates", policy)
    before = index.ids
    add_copies(index.source)
    said = index.run("ingest", "--duplicates", policy)
    assert f"4 duplicates ({policy})" in said
    if policy == "replace":
        assert index.ids == sorted(["4", "5", *COPIES, "cut#en-0"])
    else:
        assert index.ids == before
    for copy, kept in COPIES.items():
        assert index.named(copy) == ([kept] if policy == "link" else [])
    for command in ("ingest", "sync"):
        assert "duplicates" not in index.run(command, "--duplicates", policy)

    # Also by a sync, and nothing is said of them twice.
    write(index.source / "late.jpg", picture(4).resize((800, 600)), quality=60)
    said = index.run("sync", "--duplicates", policy)
    assert f"1 duplicates ({policy})" in said
    assert ("late" in index.ids, "4" in index.ids) == (policy == "replace", policy != "replace")
    (index.source / "late.jpg").unlink()

    # What remains of a pair is there after the next sync, and its link is not.
    for name in ("small.png", "0.jpg", "cut.jpg", "cut.txt"):
        (index.source / name).unlink()
    index.run("sync", "--duplicates", policy)
    left = {"1", "1#en-0", "3", "4", "5", "copy", "poor" if policy == "replace" else "2"}
    assert index.ids == sorted(left)
    assert index.named("small") == index.named("cut") == []
    assert index.named("poor") == (["2"] if policy == "link" else [])

    # So is one whose like is edited, after the same sync.
    write(index.source / f"{'poor' if policy == 'replace' else '2'}.jpg", picture(22))
    index.run("sync", "--duplicates", policy)
    assert index.ids == sorted({*left, "poor", "2"})
    index.run("sync")
    assert index.ids == sorted({*left, "poor", "2"})


def test_the_commands_of_the_page_find_an_item_by_either_name(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(index.source / "2025/lake.jpg", picture(7))
    write(index.source / "2025/lake copy.png", picture(7))
    monkeypatch.chdir(index.source.parent)
    monkeypatch.setenv("TANDEM_ADDRESS", index.fake.address)
    page = (Path(__file__).parents[2] / "docs/sync.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)

    results = [
        CliRunner().invoke(app, shlex.split(line.removeprefix("$ tandem ")))
        for line in block.splitlines()
    ]

    assert [each.exit_code for each in results] == [0, 0]
    assert "1 duplicates (link)" in results[0].output
    assert results[1].stdout.split() == ["2025/lake"]


def test_blank_pages_and_pictures_that_differ_in_one_thing_are_no_duplicates(
    index: Index,
) -> None:
    for number, shade in enumerate((250, 251, 252)):
        write(index.source / f"blank{number}.png", Image.new("RGB", (300, 400), (shade,) * 3))
    for scene in islice(scene_records("test", 1, 20), 20):
        (index.source / f"{scene.record_id}.png").write_bytes(scene.image.read())

    assert "duplicates" not in index.run("ingest", "--duplicates", "skip")
    assert len(index.ids) == 6 + 1 + 3 + 20
