"""The picture of what reranking changed."""

from pathlib import Path

from PIL import Image

from tandem.cli.serve.contact_sheet import SheetRow, write_contact_sheet
from tandem.client import FoundItem
from tandem.contract.content import Content, ImageContent
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
