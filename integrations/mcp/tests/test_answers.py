"""What a tool answers of an index, without a system."""

import dataclasses
import io

from mcp_types import TextContent
from PIL import Image

from tandem.client import (
    Abstention,
    Coverage,
    DirectionRecall,
    FoundItem,
    ImageContent,
    Modality,
    SearchResult,
    StageSeconds,
)
from tandem_mcp.answers import (
    IndexAnswer,
    SideDescription,
    index_answer,
    recall_entry,
    search_answer,
)


def test_an_index_reports_its_live_recall_by_direction() -> None:
    """In numbers for programs, in a sentence for a model; a direction without one has none."""
    side = SideDescription(item_count=3, example_ids=[], attributes={})
    recall = recall_entry(DirectionRecall(Modality.TEXT, Modality.IMAGE, 0.875, 40))
    answer = IndexAnswer(
        index="pets",
        images=side,
        texts=side,
        model="joint, f1",
        max_text_tokens=64,
        has_cross_encoder_probabilities=True,
        other_indexes=[],
        degradations=[],
        live_recalls=[recall],
    )

    result = index_answer(answer)

    [block] = result.content
    assert isinstance(block, TextContent)
    line = "Recent searches for images by text found 87.5% of the nearest (40 measured)."
    assert line in block.text.splitlines()
    assert result.structured_content["live_recalls"] == [
        {"query": "text", "target": "image", "recall": 0.875, "search_count": 40}
    ]
    assert "by image" not in block.text


def test_pictures_that_take_too_long_are_left_out() -> None:
    """The items are all listed; what is not shown is stated in the picture's place."""
    written = io.BytesIO()
    Image.new("RGB", (400, 200), "red").save(written, "PNG")
    items = tuple(
        FoundItem(f"pet-{rank}", 0.5, None, None, rank, rank, ImageContent(written.getvalue()))
        for rank in (1, 2)
    )
    seconds, coverage = StageSeconds(0.0, 0.0, 0.0, 0.0, 0.0), Coverage(1, 1, 2, 2, {})
    result = SearchResult(items, "f1", seconds, coverage)

    shown = search_answer("pets", result, 100, picture_seconds=60).content
    late = search_answer("pets", result, 100, picture_seconds=-1).content

    assert [block.type for block in shown] == ["text", "text", "image", "text", "image"]
    assert [block.type for block in late] == ["text"] * 5
    assert isinstance(late[2], TextContent)
    assert "return fewer" in late[2].text


def test_a_model_reads_that_nothing_matches() -> None:
    """In words and in the structured answer, and not of a search that only found nothing."""
    empty = SearchResult(
        items=(),
        model_fingerprint="m",
        seconds=StageSeconds(0.0, 0.0, 0.0, 0.0, 0.0),
        coverage=Coverage(1, 1, 240, 240, {}),
        abstention=Abstention(True, 0.05, "m", 1.5, 200),
    )
    silent = search_answer("scenes", empty)
    plain = search_answer("scenes", dataclasses.replace(empty, abstention=None))

    [told] = silent.content
    assert isinstance(told, TextContent)
    assert told.text == "Nothing here matches, among 240 items of scenes."
    assert silent.structured_content["nothing_matches"] is True
    assert plain.structured_content["nothing_matches"] is False
