"""The tools as MCP's own client calls them, by stdio, next to the SDK's answers."""

import asyncio
import base64
import io
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp_types import CallToolResult, ImageContent, TextContent
from PIL import Image

from tandem.client import Client, Modality, StoredItem
from tandem.client import ImageContent as StoredImage


@pytest.fixture(scope="session")
async def client(stdio: StdioServerParameters) -> AsyncIterator[McpClient]:
    """A client that started the server. One task enters and leaves it, as anyio requires."""
    entered: asyncio.Future[McpClient] = asyncio.get_running_loop().create_future()
    left = asyncio.Event()

    async def hold() -> None:
        async with McpClient(stdio) as connected:
            entered.set_result(connected)
            await left.wait()

    holding = asyncio.create_task(hold())
    waited: list[asyncio.Future[Any]] = [holding, entered]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        await holding
    yield await entered
    left.set()
    await holding


@pytest.fixture(scope="session")
def caption(system: dict[str, Any]) -> str:
    """A caption of one picture."""
    text: str = next(iter(system["captions"].values()))
    return text


def ids(result: CallToolResult) -> list[str]:
    """Returns the ids that a search found."""
    assert not result.is_error, result.content
    return [item["item_id"] for item in result.structured_content["items"]]


def told(result: CallToolResult) -> str:
    """Returns the text of an error."""
    assert result.is_error
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_it_has_tools_that_only_read(client: McpClient) -> None:
    """A client asks its user before it calls tools that write."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert set(tools) == {
        "search_images",
        "search_texts",
        "list_items",
        "fetch_items",
        "describe_index",
    }
    for tool in tools.values():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.output_schema is not None
    assert "context" not in tools["search_images"].input_schema["properties"]


async def test_a_search_for_images_answers_as_the_sdk(
    client: McpClient, sdk: Client, caption: str
) -> None:
    """The same ids, probabilities and attributes, in the same order, with the stored pictures."""
    expected = sdk.search(caption, index_id="scenes", return_n=3, content_included=True)

    result = await client.call_tool("search_images", {"query": caption, "count": 3})

    items = result.structured_content["items"]
    assert ids(result) == [item.item_id for item in expected.items]
    assert [item["match_probability"] for item in items] == pytest.approx(
        [item.match_probability for item in expected.items], abs=1e-6
    )
    assert items[0]["attributes"]["layout"] == expected.items[0].attributes["layout"]
    assert result.structured_content["searched_item_count"] == 24
    assert result.structured_content["degradations"] == []
    shown = [block for block in result.content if isinstance(block, ImageContent)]
    stored = [item.content for item in expected.items]
    assert len(shown) == 3
    for block, content in zip(shown, stored, strict=True):
        assert isinstance(content, StoredImage)
        assert base64.b64decode(block.data) == content.image_bytes
        with Image.open(io.BytesIO(content.image_bytes)) as opened:
            assert block.mime_type == f"image/{str(opened.format).lower()}"


async def test_a_picture_follows_the_line_that_names_it(client: McpClient, caption: str) -> None:
    """So that a model knows which picture has which id."""
    result = await client.call_tool("search_images", {"query": caption, "count": 2})

    kinds = [block.type for block in result.content]
    lines = [block.text for block in result.content if isinstance(block, TextContent)]
    assert kinds == ["text", "text", "image", "text", "image"]
    assert [line.split()[1] for line in lines[1:]] == ids(result)


async def test_pictures_can_be_left_out(client: McpClient, caption: str) -> None:
    """They cost a model many tokens."""
    result = await client.call_tool("search_images", {"query": caption, "pictures": False})

    assert len(ids(result)) == 5
    assert not [block for block in result.content if isinstance(block, ImageContent)]


async def test_texts_are_found_by_a_picture(
    client: McpClient, sdk: Client, system: dict[str, Any]
) -> None:
    """The picture is sent in base64; a stored one is named."""
    item_id = next(iter(system["captions"]))
    found = sdk.search(StoredItem(item_id), index_id="scenes", target_modality=Modality.IMAGE)
    assert found.items
    [picture] = [
        item.content
        for item in sdk.search(
            system["captions"][item_id], index_id="scenes", return_n=24, content_included=True
        ).items
        if item.item_id == item_id
    ]
    assert isinstance(picture, StoredImage)
    sent = base64.b64encode(picture.image_bytes).decode()
    expected = sdk.search(picture.image_bytes, index_id="scenes", return_n=4)

    by_picture = await client.call_tool("search_texts", {"image": sent, "count": 4})
    by_item = await client.call_tool("search_texts", {"like_item": item_id, "count": 4})

    assert ids(by_picture) == ids(by_item) == [item.item_id for item in expected.items]
    texts = [item["text"] for item in by_picture.structured_content["items"]]
    assert set(texts) <= set(system["captions"].values())
    assert {item["modality"] for item in by_picture.structured_content["items"]} == {"text"}


async def test_a_picture_may_be_written_in_every_usual_form(
    client: McpClient, sdk: Client, caption: str
) -> None:
    """As a data: URI, URL-safe, in lines and without padding."""
    [item] = sdk.search(caption, index_id="scenes", return_n=1, content_included=True).items
    assert isinstance(item.content, StoredImage)
    plain = base64.b64encode(item.content.image_bytes).decode()
    lines = "\n".join(plain[start : start + 76] for start in range(0, len(plain), 76))
    safe = plain.translate(str.maketrans("+/", "-_")).rstrip("=")
    expected = await client.call_tool("search_texts", {"image": plain, "count": 3})

    for form in (f"data:image/webp;base64,{plain}", lines, safe):
        found = await client.call_tool("search_texts", {"image": form, "count": 3})
        assert ids(found) == ids(expected)


async def test_a_filter_that_fits_nothing_names_the_attributes(client: McpClient) -> None:
    """And the nearest to a misspelt one; words that are cut are said to be."""
    asked = {"query": "many words " * 60, "truncate": True, "where": "layuot = stacked"}
    result = await client.call_tool("search_images", asked)
    fits = await client.call_tool("search_images", asked | {"where": "layout = stacked"})

    [block] = result.content
    assert isinstance(block, TextContent)
    assert "Did you mean layout by layuot?" in block.text
    assert "Did you mean layout by layuot?" in result.structured_content["hint"]
    assert ids(fits)
    assert (fits.structured_content["hint"], fits.structured_content["truncated"]) == (None, True)


async def test_a_filter_and_a_probability_are_passed_on(
    client: McpClient, sdk: Client, caption: str
) -> None:
    """The first with a control: without it there are others."""
    every = await client.call_tool("search_images", {"query": caption, "count": 24})
    filtered = await client.call_tool(
        "search_images", {"query": caption, "count": 24, "where": "layout = stacked"}
    )
    likely = await client.call_tool(
        "search_images", {"query": caption, "count": 24, "min_probability": 0.5}
    )

    layouts = {item["attributes"]["layout"] for item in every.structured_content["items"]}
    assert len(layouts) > 1
    assert {item["attributes"]["layout"] for item in filtered.structured_content["items"]} == {
        "stacked"
    }
    expected = sdk.search(caption, index_id="scenes", return_n=24, min_probability=0.5)
    assert ids(likely) == [item.item_id for item in expected.items]
    assert len(ids(likely)) < len(ids(every))


async def test_null_is_an_option_that_is_not_set(client: McpClient, caption: str) -> None:
    """For every option of every tool, because many callers send all that the schema has."""
    tools = (await client.list_tools()).tools
    for tool in tools:
        plain: dict[str, Any] = {"query": caption} if tool.name.startswith("search") else {}
        if tool.name == "fetch_items":
            plain = {"item_ids": ["scene-00000000"]}
        nulls = dict.fromkeys(tool.input_schema["properties"])

        result = await client.call_tool(tool.name, nulls | plain)
        expected = await client.call_tool(tool.name, plain)

        assert not result.is_error, result.content
        if plain:
            assert ids(result) == ids(expected)
            assert [each.type for each in result.content] == [
                each.type for each in expected.content
            ]
    assert len(tools) == 5


async def test_items_are_listed_by_selection_and_fetched(client: McpClient, sdk: Client) -> None:
    """As the SDK lists and fetches them, with the pictures for the model to see."""
    stored = list(sdk.list_items(index_id="scenes", where="drawing_count >= 2"))
    asked = {"where": "drawing_count >= 2", "pattern": "*", "count": 3}
    listed = await client.call_tool("list_items", asked)
    found = ids(listed)
    fetched = await client.call_tool("fetch_items", {"item_ids": [*found, "gone"]})

    assert found == [each.item_id for each in stored[:3]]
    assert listed.structured_content["has_more"]
    assert all(e["attributes"]["drawing_count"] >= 2 for e in listed.structured_content["items"])
    assert ids(fetched) == found
    pictures = [
        each
        for each in sdk.fetch_items(found, index_id="scenes")
        if isinstance(each.content, StoredImage)
    ]
    assert sum(isinstance(each, ImageContent) for each in fetched.content) == len(pictures)


async def test_an_index_is_described(client: McpClient) -> None:
    """By counts, attributes and model."""
    result = await client.call_tool("describe_index", {})

    answer = result.structured_content
    assert answer["index"] == "scenes"
    assert (answer["images"]["item_count"], answer["texts"]["item_count"]) == (24, 24)
    assert {"style", "layout", "drawing_count"} <= set(answer["images"]["attributes"])
    assert len(answer["images"]["example_ids"]) == 5
    assert answer["has_cross_encoder_probabilities"]
    # "missing" may be named, and does not exist.
    assert answer["other_indexes"] == []
    assert answer["degradations"] == []
    # Few searches were made, so none need have been measured; what was has a direction.
    assert all(each["query"] in ("text", "image") for each in answer["live_recalls"])
    [block] = result.content
    assert isinstance(block, TextContent)
    assert "24 images and 24 texts" in block.text
    assert "layout (for example" in block.text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"query": "one cat", "where": "style ="}, "FILTER_INVALID"),
        ({"query": "one cat", "index": "missing"}, "INDEX_NOT_FOUND"),
        ({"query": "one cat", "index": "secrets"}, "there are: scenes, missing"),
        ({"like_item": "none"}, "ITEM_NOT_FOUND"),
        ({"query": "one cat", "like_item": "none"}, "exactly one of"),
        ({}, "exactly one of"),
        ({"image": "no base64!"}, "not base64"),
        ({"image": "bm8gcGljdHVyZQ=="}, "IMAGE_UNREADABLE"),
        ({"query": "one � cat"}, "query has half of a character"),
        ({"query": "one cat", "where": "style = �"}, "where has half of a character"),
        ({"query": "one cat", "count": 0}, "greater than or equal to 1"),
        ({"query": "one cat", "cuont": 2}, "no option 'cuont'; did you mean count?"),
        ({"query": "one cat", "zzz": 2}, "there are: query, image"),
        ({"query": "many words " * 60}, "TEXT_TOO_LONG"),
    ],
)
async def test_a_refusal_is_an_error_that_a_model_can_read(
    client: McpClient, arguments: dict[str, Any], why: str
) -> None:
    """And not a failure of the protocol."""
    assert why in told(await client.call_tool("search_images", arguments))


async def test_a_degraded_answer_is_marked(
    system: dict[str, Any], stdio: StdioServerParameters, caption: str
) -> None:
    """To programs by name, to a model in the first line."""
    arguments = [system["degraded_address"] if a == system["address"] else a for a in stdio.args]
    degraded = stdio.model_copy(update={"args": arguments})

    async with McpClient(degraded) as client:
        result = await client.call_tool("search_images", {"query": caption})

    assert result.structured_content["degradations"] == ["RERANK_SKIPPED"]
    assert len(ids(result)) == 5
    assert {item["match_probability"] for item in result.structured_content["items"]} == {None}
    first = result.content[0]
    assert isinstance(first, TextContent)
    assert "RERANK_SKIPPED" in first.text


async def test_a_deadline_and_a_missing_server_are_errors_of_the_tool(
    stdio: StdioServerParameters, credentials: dict[str, str]
) -> None:
    """The server itself stays."""
    hasty = [*stdio.args, "--timeout-seconds", "0.0001"]
    missing = ["-m", "tandem_mcp", "--address", "127.0.0.1:1", "--index", "scenes"]

    for arguments, why in [(hasty, "DEADLINE_EXCEEDED"), (missing, "SERVICE_UNAVAILABLE")]:
        started = StdioServerParameters(command=sys.executable, args=arguments, env=credentials)
        async with McpClient(started) as client:
            assert why in told(await client.call_tool("search_texts", {"query": "one cat"}))
            assert len((await client.list_tools()).tools) == 5


async def test_a_client_of_an_older_protocol_is_served(
    stdio: StdioServerParameters, caption: str
) -> None:
    """Most clients begin with `initialize`."""
    async with McpClient(stdio, mode="legacy") as client:
        result = await client.call_tool("search_images", {"query": caption, "count": 1})
        assert client.server_info is not None
        assert client.server_info.name == "tandem"

    assert len(ids(result)) == 1
