"""The picture of what reranking changed."""

from pathlib import Path

import pytest
from PIL import Image

from tandem.cli.serve.contact_sheet import SheetRow, write_contact_sheet
from tandem.client import FoundItem
from tandem.contract.content import Content, ImageContent, TextContent
from tandem.contract.regions import RegionContent
from tandem.corpus.scenes.records import scene_records

GREEN = (26, 152, 80)


def found(item_id: str, content: Content, before: int, after: int) -> FoundItem:
    """Returns an item at two places."""
    return FoundItem(item_id, 0.5, 1.5, 0.8, before, after, content)


def test_answers_are_framed_in_both_orders(tmp_path: Path) -> None:
    """The answer is third before, first after: one green frame in each strip, at those places."""
    pictures = [
        ImageContent(record.image.read()) for record in scene_records("test", seed=1, count=4)
    ]
    after_of = {1: 2, 2: 3, 3: 1, 4: 4}
    items = [
        found(f"item-{before}", pictures[before - 1], before, after)
        for before, after in after_of.items()
    ]
    row = SheetRow("zwei Hunde, čtyři psi", "German", "item-3", items)

    write_contact_sheet([row], tmp_path / "sheet.png")

    with Image.open(tmp_path / "sheet.png") as file:
        sheet = file.convert("RGB")
    green_x = [x for x in range(sheet.width) if sheet.getpixel((x, 90)) == GREEN]
    # Two frames of two vertical edges of four pixels each.
    assert len(green_x) == 16
    frames = [green_x[0], green_x[8]]
    tile = 120
    assert [(x - start) // tile for x, start in zip(frames, (258, 874), strict=True)] == [2, 0]


def test_what_the_cross_encoder_rejects_is_pale(tmp_path: Path) -> None:
    """Among the reranked items alone: the bi-encoder's order shows them in full."""
    text = TextContent("one cat")
    items = [
        FoundItem("yes", 0.5, 2.0, 0.9, 1, 1, text),
        FoundItem("no", 0.5, -2.0, 0.1, 2, 2, text),
    ]

    write_contact_sheet([SheetRow("a cat", "English", "yes", items)], tmp_path / "sheet.png")

    with Image.open(tmp_path / "sheet.png") as file:
        sheet = file.convert("L")
    before, after = [
        [
            min(sheet.crop((x + place * 120, 38, x + place * 120 + 105, 140)).tobytes())
            for place in (0, 1)
        ]
        for x in (262, 878)
    ]
    assert max(*before, after[0]) < 120 < after[1]


def test_texts_are_shown_too(tmp_path: Path) -> None:
    """A picture's row shows the texts found for it."""
    [record, *_] = scene_records("test", seed=1, count=4)
    items = [found(f"text-{n}", TextContent("one cat left of two dogs"), n, n) for n in (1, 2, 3)]
    row = SheetRow(record.image.read(), "picture", "none", items)

    write_contact_sheet([row], tmp_path / "sheet.png")

    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 1_000


def test_regions_are_counted(tmp_path: Path) -> None:
    """There is no picture to show."""
    regions = RegionContent.of([[1.0]] * 3, [[0, 0, 1, 1]] * 3, image_width=5, image_height=5)
    contents = (regions, TextContent("3 regions"), TextContent("4 regions"))

    sheets = []
    for content in contents:
        row = SheetRow("one cat", "English", "none", [found("photo", content, 1, 1)])
        write_contact_sheet([row], tmp_path / "sheet.png")
        sheets.append((tmp_path / "sheet.png").read_bytes())

    assert sheets[0] == sheets[1] != sheets[2]


@pytest.mark.parametrize("word_count", [20, 400])
def test_a_long_text_stays_in_its_place(tmp_path: Path, word_count: int) -> None:
    """Under it is the score, and nothing else, as under a short one; so the rows stay apart."""
    [record, *_] = scene_records("test", seed=1, count=4)

    def below(text: str) -> bytes:
        """The strip of scores between two rows, from the texts on."""
        items = [found(f"text-{n}", TextContent(text), n, n) for n in (1, 2)]
        rows = [SheetRow(record.image.read(), "picture", "none", items)] * 2
        write_contact_sheet(rows, tmp_path / "sheet.png")
        with Image.open(tmp_path / "sheet.png") as sheet:
            tile_bottom = 34 + 112
            return sheet.crop((258, tile_bottom, sheet.width, tile_bottom + 26)).tobytes()

    assert below("haut " * word_count) == below("two dogs")
    assert len(set(below("two dogs"))) > 2, "no scores there"
