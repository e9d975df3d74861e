"""The folded panel with the state of the index, and searches by words, in a browser."""

from __future__ import annotations

from typing import Any

import pytest

from tandem.v1 import index_service_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.console.test_looks import LOOKS
from tests.support.client.search_server import INDEX
from tests.support.console.pages import (
    AXE,
    OpenPage,
    axe_violations,
    search,
    search_to_the_end,
    shoot,
)
from tests.support.console.told_answers import ToldAnswers, found
from tests.support.gateway_svc.running import gateway

ASKED = pb.DescribeIndexRequest(index_id="scenes")


async def test_opening_the_panel_requests_the_state_of_the_index(open_page: OpenPage) -> None:
    """Not before, and again on request and for another index; by keyboard alone."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        assert ASKED not in served.service.requests
        await page.focus("#state summary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#state-status:has-text('30,000 pictures')")
        words = await page.inner_text("#state")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#state-status:has-text('30,000 pictures')")
        await page.fill("#index", "pets")
        await page.press("#index", "Tab")
        await page.wait_for_selector("#state-status:has-text('30,000 pictures')")
        asked = [each for each in served.service.requests if isinstance(each, type(ASKED))]

    assert "30,000 pictures and 12 texts on 1 of 2 shards" in words
    assert "shard 0 is missing (service unavailable)" in words
    assert [each.index_id for each in asked[:1]] == ["scenes"]
    assert asked[-1].index_id == "pets"
    rows = [" ".join(line.split()) for line in words.splitlines()]
    assert "Pictures by text: 75.0 % in 40 searches; below the target of 98.0 %" in rows
    assert "Words are still being read from the store." in words
    image = "1 30,000 pictures 70 4 IVF64,Flat nprobe=8 on cpu 99.0 % 75.0 % by text "
    assert f"{image}too few items; writing a snapshot" in rows


async def test_an_index_that_cannot_be_described_says_why(open_page: OpenPage) -> None:
    """In the panel alone; the answer of a search stays."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        await page.fill("#index", "")
        await page.route("**/DescribeIndex", lambda route: route.abort())
        await page.click("#state summary")
        await page.wait_for_selector("#state-status:has-text('does not answer')")

        assert await page.locator("#reranked [data-item]").count() == 8


async def test_an_old_state_is_called_old_when_the_server_is_gone(open_page: OpenPage) -> None:
    """It may have changed meanwhile."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await page.click("#state summary")
        await page.wait_for_selector("#state-status:has-text('30,000 pictures')")
        await page.route("**/StreamSearchItems", lambda route: route.abort())
        await search(page)
        await page.wait_for_selector("#problem:has-text('does not answer')")
        words = await page.inner_text("#state-status")
        await shoot(page, "stale")

        assert await page.locator("#state-body table").count() == 1
    assert words.startswith("The server does not answer. This was the state at ")


@pytest.mark.skipif(not AXE.is_file(), reason="make test-console installs axe-core")
@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_no_fault_in_the_panel(look: str, open_page: OpenPage) -> None:
    """Nor is anything wider than the window."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port, reduced_motion="reduce", **LOOKS[look])
        await page.click("#options summary")
        await page.click("#state summary")
        await page.wait_for_selector("#state-body table")
        faults = await axe_violations(page)
        width = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        await shoot(page, f"{look}-state")

    assert faults == []
    assert width <= 0
    assert len(INDEX.shards[0].parts) == 2


async def test_words_are_searched_in_addition_to_the_query(open_page: OpenPage) -> None:
    """Typed words switch it on; the answer says which list found an item."""
    item = found(0, 1, logit=1.0)
    item.hybrid.CopyFrom(pb.HybridRank(similarity_rank=4, keyword_rank=2, keyword_score=7.125))
    told: dict[str, Any] = {
        "items": [item],
        "degradations": [pb.DEGRADATION_KEYWORDS_PARTIAL],
        "keyword_state": index_service_pb2.KEYWORD_STATE_BEING_BUILT,
    }
    async with gateway(ToldAnswers(**told).search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        await page.click("#options summary")
        await page.fill("#keywords", " dogs umbrella ")
        await search_to_the_end(page)
        await page.wait_for_selector("#answer[aria-busy=false]")
        degraded = await page.inner_text("#degraded")
        card = await page.inner_text("#reranked li:first-child")
        await shoot(page, "words")
        await page.click("#reranked li:first-child button")
        opened = await page.inner_text("#details")
        await page.keyboard.press("Escape")
        await page.fill("#keywords", "")
        await page.select_option("#fusion", "2")
        await search_to_the_end(page)
        await page.wait_for_selector("#answer[aria-busy=false]")
        sent = [each.search for each in served.service.requests if hasattr(each, "search")]

    first, second, third = sent
    assert not first.HasField("hybrid")
    assert (second.hybrid.keywords, second.hybrid.fusion) == (
        "dogs umbrella",
        pb.HYBRID_FUSION_RECIPROCAL_RANK,
    )
    assert (third.hybrid.keywords, third.hybrid.fusion) == ("", pb.HYBRID_FUSION_Z_SCORE)
    assert "A part of the index was not searched by words: its words are still being" in degraded
    assert "by words 2nd" in card
    assert "from both lists: 4th by similarity (" in opened
    assert "2nd by words (BM25 7.13)" in opened
