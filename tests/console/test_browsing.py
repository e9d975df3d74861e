"""What the console shows before a search: the index itself, and links that bring searches back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandem.v1 import content_pb2
from tests.support.console.pages import OpenPage, search, shoot
from tests.support.console.told_answers import ToldAnswers, held_items, item_id
from tests.support.gateway_svc.running import gateway

if TYPE_CHECKING:
    from playwright.async_api import Page


async def test_the_index_is_browsed_by_a_filter_and_a_prefix(open_page: OpenPage) -> None:
    """Pictures at first, then what matches, with its count; a click on a value adds it."""
    async with gateway(ToldAnswers().search) as served:
        served.service.held = held = held_items(text_count=1000)
        page = await open_page(served.port)
        await page.wait_for_selector("#cards img")
        begun = await page.inner_text("#browse-status")
        texts_at_first = await page.locator("#cards .text-item").count()
        counted = await page.inner_text("#values")
        first_count = await page.locator("#cards img").count()
        await page.click("#more")
        await page.wait_for_selector(f"#cards li:nth-child({first_count + 1}) img")

        await page.click("#values .value:has-text('stacked')")
        await page.wait_for_selector("#browse-status:has-text('match')")
        await page.wait_for_selector("#cards img")
        filtered = await page.inner_text("#browse-status")
        shown = await ids(page)
        await shoot(page, "browse-filter")

        await page.fill("#filter", "")
        await page.fill("#prefix", "text-")
        await page.press("#prefix", "Enter")
        await page.wait_for_selector("#cards .text-item")
        by_prefix = await page.inner_text("#browse-status")
        marked_up = await page.locator("#cards b").count()
        await shoot(page, "browse-texts")
        await page.fill("#prefix", "none-")
        await page.press("#prefix", "Enter")
        await page.wait_for_selector("#browse-status:has-text('No item matches')")

    stacked = [name for name, item in held.items() if item.attributes["layout"].text == "stacked"]
    assert begun == "Of the first 1,000 items, at random. A click finds similar ones."
    assert texts_at_first == 0
    assert "Counted over the 1,000 items loaded so far." in counted
    assert "40 different values" in counted
    assert filtered == f"{len(stacked)} items match."
    assert set(shown) <= set(stacked)
    assert by_prefix == "1,000 items match."
    assert marked_up == 0


async def test_one_click_finds_similar_pictures(open_page: OpenPage) -> None:
    """From what was browsed, and from a search's answer."""
    async with gateway(ToldAnswers().search) as served:
        served.service.held = held_items()
        page = await open_page(served.port)
        await page.wait_for_selector("#cards img")
        first = (await ids(page))[0]
        await page.click("#cards button")
        await page.wait_for_selector("#answer[aria-busy=false] #reranked [data-item]")
        await page.click("#reranked li:first-child .similar")
        await page.wait_for_selector(f"#chosen .name:has-text('{item_id(4)}')")
        await page.wait_for_selector("#answer[aria-busy=false]")

    searches = [each.search for each in served.service.requests if hasattr(each, "search")]
    assert [each.query_parts[0].item_id for each in searches] == [first, item_id(4)]
    assert {each.target_modality for each in searches} == {content_pb2.MODALITY_IMAGE}


async def test_a_link_brings_a_search_back(open_page: OpenPage) -> None:
    """With its options, in another window; back and forward lead from step to step."""
    async with gateway(ToldAnswers().search) as served:
        served.service.held = held_items()
        page = await open_page(served.port)
        await page.wait_for_selector("#cards img")
        await page.click("summary")
        await page.fill("#filter", 'drawing_count <= 3 and style = "noto"')
        await page.fill("#token", "secret")
        await page.check("#adaptive")
        await page.select_option("#shown", "5")
        await search(page, "two dogs & a cat")
        await page.wait_for_selector("#answer[aria-busy=false] #reranked [data-item]")
        link = page.url
        await page.click("#reranked li:first-child .similar")
        await page.wait_for_selector("#answer[aria-busy=false] #reranked [data-item]")
        await page.go_back()
        await page.wait_for_selector("form:not(.has-other) #words")
        await page.wait_for_selector("#answer[aria-busy=false]")
        back = await page.input_value("#words")
        await page.go_forward()
        await page.wait_for_selector(f"#chosen .name:has-text('{item_id(4)}')")

        other = await page.context.new_page()
        await other.goto(link)
        await other.wait_for_selector("#reranked [data-item]")
        filter_is_seen = await other.is_visible("#filter")
        await other.goto(link.partition("#")[0] + "#text=a+dog&show=7&rerank=9999&find=x")
        await other.wait_for_function("document.title.startsWith('a dog')")
        await other.wait_for_selector("#answer[aria-busy=false]")

    searches = [each.search for each in served.service.requests if hasattr(each, "search")]
    first, strange = searches[0], searches[-1]
    assert first.query.text == back == "two dogs & a cat"
    assert first.adaptive_depth
    assert first.filter_text
    assert [each == first for each in searches] == [True, False, True, False, True, False]
    assert filter_is_seen
    assert "limit_ms=10000" in link
    assert "secret" not in link
    # A stranger's link stays within what the form allows.
    assert (strange.return_n, strange.rerank_k) == (10, 100)


async def ids(page: Page) -> list[str]:
    """Returns the ids of the cards, in order."""
    found: list[str] = await page.eval_on_selector_all(
        "#cards .id", "all => all.map(each => each.textContent)"
    )
    return found
