"""Defines the MCP server: its tools, and how they call Tandem."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, Unpack

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from starlette.requests import Request

from tandem.client import (
    Access,
    AsyncClient,
    Client,
    KeptItem,
    Modality,
    Query,
    SearchOptions,
    SearchResult,
    StoredItem,
    decoded_picture,
)
from tandem.errors import TandemError
from tandem_mcp.answers import (
    IndexAnswer,
    ItemsAnswer,
    SearchAnswer,
    index_answer,
    items_answer,
    recall_entry,
    search_answer,
    side_description,
)
from tandem_mcp.callers import CallerClients
from tandem_mcp.pictures import picture_threads
from tandem_mcp.standard_input import HALF_MARK

_CallContext: TypeAlias = Context[CallerClients, Request]

QUERY = Field(description="what to find, in words")
IMAGE = Field(description="instead of words: a JPEG, PNG or WebP file in base64 or a data: URI")
ITEM = Field(description="instead of words: the id of a stored item, to find what is like it")
INDEX = Field(description="the index to search; by default the first that is served")
COUNT = Field(ge=1, le=50, description="how many items to return")
WHERE = Field(
    description="only items with these attributes, for example: style = noto and count >= 2 and "
    "not (language in (de, fr)); describe_index names the attributes"
)
CHANCE = Field(
    ge=0.0, le=1.0, description="leave out items with a lower match probability than this"
)
FALSE_ANSWERS = Field(
    gt=0.0,
    lt=1.0,
    description="return nothing, and say so, rather than the least bad items: the share of queries "
    "without an answer that may get one, for example 0.05; needs a calibrated index",
)
PREFIX = Field(description="only items whose ids begin so")
PATTERN = Field(description="only items whose ids match this: * matches any characters, ? one")
LIST_COUNT = Field(ge=1, le=500, description="how many items to list")
ITEMS = Field(min_length=1, max_length=20, description="ids of stored items")
PICTURES = Field(description="whether to return the pictures too, not only their ids")
TRUNCATE = Field(description="whether to read only the beginning of words that are too many")

# Many callers send null for every option that they do not set, so each option takes it.
_COUNT = 5
_LIST_COUNT = 50
_EXAMPLE_COUNT = 5
_ANY_QUERY = "a picture"
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class ServedIndexes:
    """What a server lets its callers search, and with which rights."""

    address: str
    """host:port of the orchestrator."""
    index_ids: tuple[str, ...]
    """The indexes that tools can name; the first is the default."""
    access: Access = field(default_factory=Access)
    timeout_seconds: float = 10.0
    longest_side: int = 512
    """Pictures are scaled down to this many pixels."""
    is_token_lent: bool = True
    """Whether callers by HTTP that send no token use that of `access`."""

    def __post_init__(self) -> None:
        """Raises ValueError, also for the address, and connects to nothing."""
        Client(self.address, access=self.access).close()
        if not self.index_ids:
            raise ValueError("name at least one index to serve")
        if self.longest_side < 1:
            raise ValueError(f"pictures of {self.longest_side} pixels have nothing to see")
        if not 0 < self.timeout_seconds < math.inf:
            raise ValueError(f"a call cannot end in {self.timeout_seconds:g} seconds")


def make_server(served: ServedIndexes) -> MCPServer[CallerClients]:
    """Returns the server, with its tools."""

    @asynccontextmanager
    async def clients(_: MCPServer[CallerClients]) -> AsyncIterator[CallerClients]:
        opened = CallerClients(
            served.address,
            served.access,
            served.timeout_seconds,
            is_token_lent=served.is_token_lent,
        )
        try:
            yield opened
        finally:
            await opened.close()

    tools = _Tools(served)
    return MCPServer[CallerClients](
        "tandem",
        title="Tandem",
        instructions=(
            "Searches stored images by words or by an image, and stored texts by an image or by "
            "words. Call describe_index first to learn what there is and what can be filtered by."
        ),
        version="0.1.0",
        lifespan=clients,
        log_level="WARNING",
        tools=[
            _StrictTool.from_function(each, annotations=_READS)
            for each in (
                tools.search_images,
                tools.search_texts,
                tools.list_items,
                tools.fetch_items,
                tools.describe_index,
            )
        ],
    )


class _StrictTool(Tool):
    """Refuses options that it does not have, by name; MCP passes over them."""

    async def run(self, arguments: dict[str, Any], *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        """Returns the tool's result; raises ToolError."""
        options = self.parameters["properties"]
        for name in arguments.keys() - options.keys():
            near = get_close_matches(name, options, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(options)}"
            raise ToolError(f"{self.name} has no option {name[:64]!a}; {hint}")
        return await super().run(arguments, *rest, **named)


class _Tools:
    """The tools. Their signatures and first lines are what a model reads of them."""

    def __init__(self, served: ServedIndexes) -> None:
        self._served = served
        self._threads = picture_threads()

    async def search_images(  # noqa: PLR0913 (each is an argument of the tool)
        self,
        context: _CallContext,
        query: Annotated[str | None, QUERY] = None,
        image: Annotated[str | None, IMAGE] = None,
        like_item: Annotated[str | None, ITEM] = None,
        index: Annotated[str | None, INDEX] = None,
        count: Annotated[int | None, COUNT] = _COUNT,
        where: Annotated[str | None, WHERE] = None,
        min_probability: Annotated[float | None, CHANCE] = None,
        max_false_answer_rate: Annotated[float | None, FALSE_ANSWERS] = None,
        pictures: Annotated[bool | None, PICTURES] = True,
        truncate: Annotated[bool | None, TRUNCATE] = False,
    ) -> Annotated[CallToolResult, SearchAnswer]:
        """Find stored images that match words, a picture, or a stored item, best first."""
        index_id = self._index(index)
        result, hint = await _found(
            context,
            (query, image, like_item),
            index_id,
            Modality.IMAGE,
            where,
            return_n=_COUNT if count is None else count,
            min_probability=min_probability,
            max_false_answer_rate=max_false_answer_rate,
            truncation_policy="truncate" if truncate else None,
            content_included=pictures is not False,
        )
        side = 0 if pictures is False else self._served.longest_side
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, search_answer, index_id, result, side, self._served.timeout_seconds, hint
        )

    async def search_texts(  # noqa: PLR0913 (each is an argument of the tool)
        self,
        context: _CallContext,
        query: Annotated[str | None, QUERY] = None,
        image: Annotated[str | None, IMAGE] = None,
        like_item: Annotated[str | None, ITEM] = None,
        index: Annotated[str | None, INDEX] = None,
        count: Annotated[int | None, COUNT] = _COUNT,
        where: Annotated[str | None, WHERE] = None,
        min_probability: Annotated[float | None, CHANCE] = None,
        max_false_answer_rate: Annotated[float | None, FALSE_ANSWERS] = None,
        truncate: Annotated[bool | None, TRUNCATE] = False,
    ) -> Annotated[CallToolResult, SearchAnswer]:
        """Find stored texts that match a picture, words, or a stored item, best first."""
        index_id = self._index(index)
        result, hint = await _found(
            context,
            (query, image, like_item),
            index_id,
            Modality.TEXT,
            where,
            return_n=_COUNT if count is None else count,
            min_probability=min_probability,
            max_false_answer_rate=max_false_answer_rate,
            truncation_policy="truncate" if truncate else None,
            content_included=True,
        )
        return search_answer(index_id, result, hint=hint)

    async def list_items(
        self,
        context: _CallContext,
        prefix: Annotated[str | None, PREFIX] = None,
        pattern: Annotated[str | None, PATTERN] = None,
        where: Annotated[str | None, WHERE] = None,
        index: Annotated[str | None, INDEX] = None,
        count: Annotated[int | None, LIST_COUNT] = _LIST_COUNT,
    ) -> Annotated[CallToolResult, ItemsAnswer]:
        """List stored items with their attributes, in the order of their ids."""
        with _told_to_the_model():
            _check_whole(prefix=prefix, pattern=pattern, where=where)
            index_id, most = self._index(index), _LIST_COUNT if count is None else count
            items: list[KeptItem] = []
            async with _client(context) as client:
                async for each in client.list_items(
                    index_id=index_id,
                    attributes_included=True,
                    where=where or None,
                    id_prefix=prefix or "",
                    id_glob=pattern or "",
                ):
                    items.append(each)
                    if len(items) > most:
                        break
        return items_answer(index_id, items[:most], has_more=len(items) > most)

    async def fetch_items(
        self,
        context: _CallContext,
        item_ids: Annotated[list[str], ITEMS],
        index: Annotated[str | None, INDEX] = None,
        pictures: Annotated[bool | None, PICTURES] = True,
    ) -> Annotated[CallToolResult, ItemsAnswer]:
        """Return stored items by their ids, with their texts or pictures and attributes."""
        with _told_to_the_model():
            index_id = self._index(index)
            async with _client(context) as client:
                items = await client.fetch_items(item_ids, index_id=index_id)
        side = 0 if pictures is False else self._served.longest_side
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, items_answer, index_id, items, side
        )

    async def describe_index(
        self, context: _CallContext, index: Annotated[str | None, INDEX] = None
    ) -> Annotated[CallToolResult, IndexAnswer]:
        """Say what an index has: images, texts, their attributes, its model, live recall."""
        with _told_to_the_model():
            index_id = self._index(index)
            async with _client(context) as client:
                model = await client.describe_model()
                described = await client.describe_index(index_id=index_id)
                listed = await client.list_indexes()
                images = await _examples(client, index_id, Modality.IMAGE)
                texts = await _examples(client, index_id, Modality.TEXT)
        return index_answer(
            IndexAnswer(
                index=index_id,
                images=side_description(images),
                texts=side_description(texts),
                model=f"{model.family}, {model.fingerprint[:12]}",
                max_text_tokens=model.max_text_token_count,
                has_cross_encoder_probabilities=model.probability_calibration is not None,
                other_indexes=[
                    each.index_id
                    for each in listed.indexes
                    if each.index_id in self._served.index_ids and each.index_id != index_id
                ],
                # In bi-encoder order on purpose, so only missing shards count.
                degradations=sorted(
                    {*images.degradations, *texts.degradations, *described.degradations}
                ),
                live_recalls=[recall_entry(each) for each in described.live_recalls],
            )
        )

    def _index(self, named: str | None) -> str:
        if not named:
            return self._served.index_ids[0]
        if named not in self._served.index_ids:
            known = ", ".join(self._served.index_ids)
            raise ToolError(f"the index {named!r} is not served here; there are: {known}")
        return named


async def _found(
    context: _CallContext,
    sources: tuple[str | None, str | None, str | None],
    index_id: str,
    target: Modality,
    text: str | None,
    **options: Unpack[SearchOptions],
) -> tuple[SearchResult, str]:
    """Returns what a search finds and, if its filter fits nothing, what there is to filter by."""
    options |= {"where": text or None, "target_modality": target, "attributes_included": True}
    with _told_to_the_model():
        _check_whole(where=text)
        async with _client(context) as client:
            result = await client.search(_query(*sources), index_id=index_id, **options)
            is_bounded = result.abstained or options["min_probability"] is not None
            if result.items or is_bounded or not text:
                return result, ""
            near = await _examples(client, index_id, target, count=20)
    known = sorted({name for item in near.items for name in item.attributes})
    hint = f"No item is as where says; items have the attributes {', '.join(known) or 'none'}."
    for word in {*re.findall(r"[^\s\"'=<>!(),]+", text)} - {*known}:
        hint += "".join(f" Did you mean {n} by {word}?" for n in get_close_matches(word, known, 1))
    return result, hint


async def _examples(
    client: AsyncClient, index_id: str, modality: Modality, count: int = _EXAMPLE_COUNT
) -> SearchResult:
    """Finds a few items, for their attributes, and all that a response counts."""
    return await client.search(
        _ANY_QUERY,
        index_id=index_id,
        target_modality=modality,
        return_n=count,
        rerank_disabled=True,
        attributes_included=True,
    )


def _client(context: _CallContext) -> AbstractAsyncContextManager[AsyncClient]:
    called = context.request_context
    return called.lifespan_context.of(called.request)


def _query(words: str | None, image: str | None, item_id: str | None) -> Query:
    given = [each for each in (words, image, item_id) if each]
    if len(given) != 1:
        raise ToolError("give exactly one of query, image and like_item")
    _check_whole(query=words, like_item=item_id)
    if words:
        return words
    if item_id:
        return StoredItem(item_id)
    try:
        return decoded_picture(image or "")
    except ValueError as error:
        raise ToolError(f"the image is not base64: {error}") from error


def _check_whole(**texts: str | None) -> None:
    """Raises ToolError for a text of which a part did not arrive."""
    for name, text in texts.items():
        if text and HALF_MARK in text:
            raise ToolError(
                f"{name} has half of a character, or bytes that are not UTF-8; send whole Unicode"
            )


@contextmanager
def _told_to_the_model() -> Iterator[None]:
    """Raises Tandem's refusals as ToolError, whose message a model reads and acts on."""
    try:
        yield
    except TandemError as error:
        raise ToolError(f"{error.reason}: {error.message}") from error
