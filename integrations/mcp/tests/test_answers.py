"""What a tool answers of an index, without a system."""

from __future__ import annotations

from mcp_types import TextContent

from tandem.client import DirectionRecall, Modality
from tandem_mcp.answers import IndexAnswer, SideDescription, index_answer, recall_entry


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
