"""Writes what a tool answers: data for programs, and lines and pictures for a model."""

import time
from collections.abc import Sequence

from mcp_types import CallToolResult, ContentBlock, TextContent
from pydantic import BaseModel, Field

from tandem.client import DirectionRecall, FoundItem, ImageContent, KeptItem, SearchResult
from tandem.client import TextContent as StoredText
from tandem_mcp.pictures import picture_content

_NOT_SHOWN = "(its picture cannot be shown)"
_TOO_LATE = "(the pictures before took too long to show this one too; return fewer)"

AttributeValues = dict[str, str | int | float | bool | list[str]]


class FoundEntry(BaseModel):
    """One item that a search found."""

    rank: int = Field(description="from 1, the best")
    item_id: str
    modality: str = Field(description="text or image; empty if unknown")
    similarity: float = Field(description="the bi-encoder's cosine similarity, -1 to 1")
    match_probability: float | None = Field(
        description="how likely it matches, 0 to 1; null if the cross-encoder did not score it"
    )
    text: str | None = Field(description="the stored text; null for an image")
    attributes: AttributeValues = Field(description="what the item was stored with")


class SearchAnswer(BaseModel):
    """What a search found, and how far it got."""

    index: str
    items: list[FoundEntry] = Field(description="best first")
    nothing_matches: bool = Field(
        description="whether the index has nothing that matches, rather than nothing at all; only "
        "if max_false_answer_rate was given"
    )
    searched_item_count: int = Field(description="items of this kind that were searched")
    degradations: list[str] = Field(
        description="how the answer is degraded, for example RERANK_SKIPPED; empty if it is not"
    )
    hint: str | None = Field(description="why nothing was found; null if something was")
    truncated: bool = Field(description="whether only the beginning of the words was read")


class ItemEntry(BaseModel):
    """One stored item."""

    item_id: str
    text: str | None = Field(description="the stored text; null for an image, and in a list")
    attributes: AttributeValues = Field(description="what the item was stored with")


class ItemsAnswer(BaseModel):
    """Stored items, as they are."""

    index: str
    items: list[ItemEntry]
    has_more: bool = Field(description="whether there are more items like these")


class SideDescription(BaseModel):
    """The images, or the texts, of an index."""

    item_count: int
    example_ids: list[str]
    attributes: AttributeValues = Field(
        description="names of attributes with one example value each; they can be filtered by"
    )


class RecallEntry(BaseModel):
    """The share of the truly nearest items that recent searches of one direction found."""

    query: str = Field(description="what was searched by: text or image")
    target: str = Field(description="what was searched for: text or image")
    recall: float = Field(description="0 to 1")
    search_count: int = Field(description="searches that were repeated exactly to measure it")


class IndexAnswer(BaseModel):
    """What an index has, and the model that searches it."""

    index: str
    images: SideDescription
    texts: SideDescription
    model: str = Field(description="family and fingerprint of the model")
    max_text_tokens: int
    has_cross_encoder_probabilities: bool
    other_indexes: list[str]
    degradations: list[str]
    live_recalls: list[RecallEntry] = Field(
        description="by direction; empty if no recent search was measured"
    )


def search_answer(
    index: str,
    result: SearchResult,
    longest_side: int = 0,
    picture_seconds: float = 0.0,
    hint: str = "",
) -> CallToolResult:
    """Returns the tool's result, with a hint; pictures only if `longest_side` is above 0.

    Decodes pictures, so call it in a thread; after `picture_seconds` it begins no other.
    """
    end_time = time.monotonic() + picture_seconds
    answer = SearchAnswer(
        index=index,
        items=[_entry(item) for item in result.items],
        nothing_matches=result.abstained,
        searched_item_count=result.coverage.covered_item_count,
        degradations=list(result.degradations),
        hint=hint or None,
        truncated=any(each.is_truncated for each in result.text_uses),
    )
    blocks: list[ContentBlock] = [TextContent(type="text", text=_headline(answer))]
    for entry, item in zip(answer.items, result.items, strict=True):
        blocks.append(TextContent(type="text", text=_line(entry)))
        if longest_side and isinstance(item.content, ImageContent):
            is_late = time.monotonic() > end_time
            blocks.append(
                (None if is_late else picture_content(item.content.image_bytes, longest_side))
                or TextContent(type="text", text=_TOO_LATE if is_late else _NOT_SHOWN)
            )
    return _result(answer, blocks)


def items_answer(
    index: str, items: Sequence[KeptItem], longest_side: int = 0, *, has_more: bool = False
) -> CallToolResult:
    """Returns the tool's result; with pictures, in a thread, if `longest_side` is above 0."""
    answer = ItemsAnswer(
        index=index,
        items=[
            ItemEntry(item_id=each.item_id, text=_text(each), attributes=_attributes(each))
            for each in items
        ],
        has_more=has_more,
    )
    more = ", and there are more" if has_more else ""
    blocks: list[ContentBlock] = [
        TextContent(type="text", text=f"{len(items)} items of {index}{more}.")
    ]
    for entry, item in zip(answer.items, items, strict=True):
        line = f"{entry.item_id} {entry.attributes} {entry.text or ''}".rstrip()
        blocks.append(TextContent(type="text", text=line))
        if longest_side and isinstance(item.content, ImageContent):
            blocks.append(
                picture_content(item.content.image_bytes, longest_side)
                or TextContent(type="text", text=_NOT_SHOWN)
            )
    return _result(answer, blocks)


def index_answer(answer: IndexAnswer) -> CallToolResult:
    """Returns the tool's result."""
    lines = [
        f"Index {answer.index}: {answer.images.item_count:,} images and "
        f"{answer.texts.item_count:,} texts.",
        *_side_lines("images", answer.images),
        *_side_lines("texts", answer.texts),
        f"Model: {answer.model}.",
    ]
    lines += [
        f"Recent searches for {each.target}s by {each.query} found {each.recall:.1%} of the "
        f"nearest ({each.search_count:,} measured)."
        for each in answer.live_recalls
    ]
    if answer.other_indexes:
        lines.append(f"Other indexes: {', '.join(answer.other_indexes)}.")
    if answer.degradations:
        lines.append(_degraded(answer.degradations))
    return _result(answer, [TextContent(type="text", text="\n".join(lines))])


def recall_entry(recall: DirectionRecall) -> RecallEntry:
    """Returns the recall of one direction."""
    return RecallEntry(
        query=recall.query_modality.value,
        target=recall.target_modality.value,
        recall=recall.recall,
        search_count=recall.search_count,
    )


def side_description(result: SearchResult) -> SideDescription:
    """Describes one side of an index by a search that found some of its items."""
    attributes: AttributeValues = {}
    for item in result.items:
        for name, value in _attributes(item).items():
            attributes.setdefault(name, value)
    return SideDescription(
        item_count=result.coverage.item_count or result.coverage.covered_item_count,
        example_ids=[item.item_id for item in result.items],
        attributes=attributes,
    )


def _result(answer: BaseModel, blocks: list[ContentBlock]) -> CallToolResult:
    return CallToolResult(content=blocks, structured_content=answer.model_dump(mode="json"))


def _entry(item: FoundItem) -> FoundEntry:
    return FoundEntry(
        rank=item.final_rank,
        item_id=item.item_id,
        modality=item.modality.value if item.modality else "",
        similarity=item.similarity,
        match_probability=item.match_probability,
        text=_text(item),
        attributes=_attributes(item),
    )


def _text(item: FoundItem | KeptItem) -> str | None:
    return item.content.text if isinstance(item.content, StoredText) else None


def _attributes(item: FoundItem | KeptItem) -> AttributeValues:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in item.attributes.items()
    }


def _headline(answer: SearchAnswer) -> str:
    if answer.nothing_matches:
        return (
            f"Nothing here matches, among {answer.searched_item_count:,} items of {answer.index}."
        )
    found = f"{len(answer.items)} of {answer.searched_item_count:,} items of {answer.index}."
    degraded = _degraded(answer.degradations) if answer.degradations else ""
    cut = "Only the beginning of the words was read." if answer.truncated else ""
    return " ".join(filter(None, (found, degraded, cut, answer.hint)))


def _degraded(degradations: Sequence[str]) -> str:
    return f"The answer is degraded ({', '.join(degradations)}): it may lack items or better order."


def _line(entry: FoundEntry) -> str:
    chance = entry.match_probability
    score = f"similarity {entry.similarity:.2f}" if chance is None else f"probability {chance:.2f}"
    text = f": {entry.text}" if entry.text is not None else ""
    return f"{entry.rank}. {entry.item_id} ({score}){text}"


def _side_lines(name: str, side: SideDescription) -> list[str]:
    if not side.attributes:
        return []
    shown = ", ".join(f"{key} (for example {value!r})" for key, value in side.attributes.items())
    return [f"Attributes of {name}: {shown}."]
