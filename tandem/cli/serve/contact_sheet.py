"""Draws several searches: the queries, the retrieved items, and the reranked items."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from tandem.client import FoundItem
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.regions import RegionContent
from tandem.installation import demo_folder

SHOWN_COUNT = 5

_TILE = 112
_GAP = 8
_QUERY_WIDTH = 250
_LABEL_HEIGHT = 18
_HEADER_HEIGHT = 34
_SMALLEST_FONT = 9
_TEXT = "#1c2733"
_MUTED = "#66727f"
_RIGHT = "#1a9850"
_EDGE = "#c9d1d9"
_BACKGROUND = "#f6f8fa"


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One query, the id of its answer, and the items that a search returned."""

    query: str | bytes
    note: str
    answer_id: str
    items: Sequence[FoundItem] = ()


def write_contact_sheet(rows: Sequence[SheetRow], path: Path) -> None:
    """Writes a PNG: one row a query, five items before and after reranking, the answer in green.

    Reranked items that the cross-encoder judges not to match (a negative logit) are pale.
    """
    strip_width = SHOWN_COUNT * (_TILE + _GAP)
    row_height = _TILE + _LABEL_HEIGHT + 2 * _GAP
    width = _QUERY_WIDTH + 2 * strip_width + 4 * _GAP
    sheet = Image.new("RGB", (width, _HEADER_HEIGHT + len(rows) * row_height + _GAP), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    before_x = _QUERY_WIDTH + _GAP
    after_x = before_x + strip_width + 2 * _GAP
    for x, title in ((_GAP, "query"), (before_x, "retrieved (BE)"), (after_x, "reranked (CE)")):
        draw.text((x, 10), title, fill=_MUTED, font=_font(14))
    for number, row in enumerate(rows):
        top = _HEADER_HEIGHT + number * row_height
        draw.line((0, top - _GAP // 2, width, top - _GAP // 2), fill=_EDGE)
        _draw_query(sheet, draw, row, top)
        retrieved = sorted(row.items, key=lambda item: item.retrieve_rank)
        reranked = sorted(row.items, key=lambda item: item.final_rank)
        for x, items in ((before_x, retrieved), (after_x, reranked)):
            for place, item in enumerate(items[:SHOWN_COUNT]):
                left = x + place * (_TILE + _GAP)
                _draw_item(sheet, draw, item, (left, top), item.item_id == row.answer_id)
                if items is reranked and (item.match_logit or 0.0) < 0:
                    _pale(sheet, (left, top))
                score = item.similarity if items is retrieved else item.match_logit
                label = "" if score is None else f"{score:+.2f}"
                draw.text((left + 2, top + _TILE + 2), label, fill=_MUTED, font=_font(12))
    sheet.save(path)


def _draw_query(sheet: Image.Image, draw: ImageDraw.ImageDraw, row: SheetRow, top: int) -> None:
    if isinstance(row.query, bytes):
        sheet.paste(_picture(row.query), (_GAP, top))
        draw.text((_GAP + _TILE + _GAP, top + 4), row.note, fill=_MUTED, font=_font(13))
        return
    draw.text((_GAP, top + 4), row.note, fill=_MUTED, font=_font(13))
    box = (_GAP, top + 24, _QUERY_WIDTH - _GAP, top + _TILE + _LABEL_HEIGHT)
    _draw_wrapped(draw, row.query, box, 16)


def _draw_item(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    item: FoundItem,
    corner: tuple[int, int],
    is_answer: bool,
) -> None:
    left, top = corner
    box = (left, top, left + _TILE - 1, top + _TILE - 1)
    if isinstance(item.content, ImageContent):
        sheet.paste(_picture(item.content.image_bytes), corner)
    elif isinstance(item.content, RegionContent | TextContent):
        draw.rectangle(box, fill="white")
        inside = (left + 5, top + 5, left + _TILE - 5, top + _TILE - 5)
        match item.content:
            case TextContent(text):
                _draw_wrapped(draw, text, inside, 12)
            case RegionContent(region_count=count):
                _draw_wrapped(draw, f"{count} regions", inside, 12)
    draw.rectangle(box, outline=_RIGHT if is_answer else _EDGE, width=4 if is_answer else 1)


def _pale(sheet: Image.Image, corner: tuple[int, int]) -> None:
    left, top = corner
    box = (left, top, left + _TILE, top + _TILE)
    tile = sheet.crop(box)
    sheet.paste(Image.blend(tile, Image.new("RGB", tile.size, _BACKGROUND), 0.7), box)


def _draw_wrapped(
    draw: ImageDraw.ImageDraw, text: str, box: tuple[int, int, int, int], size: int
) -> None:
    """Draws a text within (left, top, right, bottom): smaller if long, cut if too long."""
    left, top, right, bottom = box
    for font in map(_font, range(size, _SMALLEST_FONT - 1, -1)):
        lines = _lines(draw, text, right - left, font)
        ascent, descent = font.getmetrics()
        line_height = ascent + descent
        fitting = (bottom - top) // line_height
        if len(lines) <= fitting:
            break
    else:
        lines = [*lines[: fitting - 1], f"{lines[fitting - 1]} …"]
    for number, line in enumerate(lines):
        draw.text((left, top + number * line_height), line, fill=_TEXT, font=font)


def _lines(
    draw: ImageDraw.ImageDraw, text: str, width: int, font: ImageFont.FreeTypeFont
) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and draw.textlength(longer, font=font) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _picture(image_bytes: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(image_bytes)).convert("RGB")
    return picture.resize((_TILE, _TILE), Image.Resampling.LANCZOS)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    # Pillow's own font lacks most accents, and a machine may have no fonts.
    return ImageFont.truetype(demo_folder("cli/fonts", "the font") / "DejaVuSans.ttf", size)
