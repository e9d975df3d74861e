"""The console in a browser: what a person does, and what then stands on the page.

The gateway is the real one, before a SearchService that does what a test says.
"""

from __future__ import annotations

from typing import Any

import pytest

from tandem.corpus.scenes.records import scene_records
from tandem.errors import FilterInvalid, Unauthenticated
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.console.pages import OpenPage, order, search, search_to_the_end, shoot
from tests.support.console.told_answers import ToldAnswers, final_answer, found, item_id
from tests.support.gateway_svc.running import gateway

PICTURE = next(iter(scene_records("test", 3, 4))).image.read()


async def test_the_first_order_is_shown_before_the_second_arrives(open_page: OpenPage) -> None:
    """Two phases: the right column waits, and then has the final order, with curves to it."""
    told = ToldAnswers()
    told.may_end.clear()
    async with gateway(told.search) as served:
        page = await open_page(served.port)
        await search(page)
        await page.wait_for_selector("#retrieved [data-item]")

        assert await order(page, "retrieved") == [item_id(place) for place in range(8)]
        assert await page.locator("#reranked .awaited").count() == 8
        assert await page.locator("#curves path").count() == 0
        assert "The cross-encoder reads" in await page.inner_text("#status")
        await shoot(page, "awaited")

        told.may_end.set()
        await page.wait_for_selector("#reranked [data-item]")
        assert await order(page, "reranked") == [
            item_id(place) for place in (4, 0, 1, 3, 2, 5, 6, 7)
        ]
        kinds = await page.eval_on_selector_all(
            "#curves path", "paths => paths.map(path => path.classList[1])"
        )
        assert sorted(kinds) == sorted(
            ["up", "down", "down", "down", "same", "same", "same", "same"]
        )
        assert "▲ 4" in await page.inner_text("#reranked li:first-child .moved")
        assert await page.locator("#answer").get_attribute("aria-busy") == "false"


async def test_each_item_has_its_figures_and_reasons(open_page: OpenPage) -> None:
    """On its card, and in words where it is opened."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        card = await page.inner_text("#reranked li:first-child")
        await page.click("#reranked li:first-child button")
        opened = await page.inner_text("#details")
        await shoot(page, "details")

    assert all(figure in card for figure in ("88 %", "2.00", "0.420"))
    assert "Retrieved 5th, by a similarity of 0.420" in opened
    assert "the highest logit here" in opened
    assert (
        f"rises from 5th to 1st, past {item_id(0)}, {item_id(1)}, {item_id(3)} and 1 more" in opened
    )


async def test_an_uncalibrated_model_shows_logits_and_no_percentage(open_page: OpenPage) -> None:
    """On its card, and in words where it is opened."""
    items = [found(place, place + 1, 2.0 - place) for place in range(8)]
    for item in items:
        item.ClearField("match_probability")
    async with gateway(ToldAnswers(items=items).search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        card = await page.inner_text("#reranked li:first-child")
        await page.click("#reranked li:first-child button")
        opened = await page.inner_text("#details")

    assert "uncalibrated" in card
    assert "2.00" in card
    assert "%" not in card + opened
    assert "the highest logit here: it was not calibrated" in opened


async def test_the_console_works_by_keyboard_alone(open_page: OpenPage) -> None:
    """Types, reaches an item, opens it, closes it, and is back where it was."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await page.keyboard.type("two dogs")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#reranked [data-item]")
        for _ in range(40):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.closest('#reranked') !== null"):
                break
        await page.keyboard.press("Enter")
        assert await page.locator("dialog[open]").count() == 1
        await page.keyboard.press("Escape")
        assert await page.locator("dialog[open]").count() == 0
        assert await page.evaluate("document.activeElement.closest('#reranked') !== null")


async def test_sliders_and_choices_reach_the_server(open_page: OpenPage) -> None:
    """Depth, cut, filter, target and count; a slider that is let go searches again."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        await page.click("summary")
        await page.fill("#filter", "style = noto")
        await page.select_option("#shown", "20")
        await page.fill("#cut", "40")
        await page.fill("#depth", "60")
        await page.dispatch_event("#depth", "change")
        await page.wait_for_selector("#depth-value:has-text('60')")
        await page.wait_for_selector("#answer[aria-busy=false]")
        requests = [each.search for each in served.service.requests if hasattr(each, "search")]
        first, last = requests[0], requests[-1]
        assert await page.inner_text("#depth-value") == "60"

    assert (first.rerank_k, first.return_n, first.filter_text) == (20, 10, "")
    assert (last.rerank_k, last.retrieve_k, last.return_n) == (60, 60, 20)
    assert (last.filter_text, round(last.min_probability, 2)) == ("style = noto", 0.4)
    assert (last.explained, last.content_included) == (True, True)


async def test_a_picture_is_searched_by(open_page: OpenPage) -> None:
    """Chosen, or dropped onto the page."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await page.set_input_files(
            "#file", {"name": "mine.png", "mimeType": "image/png", "buffer": PICTURE}
        )
        await page.wait_for_selector("#reranked [data-item]")
        assert "mine.png" in await page.inner_text("#chosen")
        await shoot(page, "picture")
        await page.evaluate(
            """bytes => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png"));
                const options = {dataTransfer: transfer, bubbles: true, cancelable: true};
                for (const kind of ["dragover", "drop"])
                    document.body.dispatchEvent(new DragEvent(kind, options));
            }""",
            list(PICTURE),
        )
        await page.wait_for_selector("#chosen:has-text('dropped')")
        await page.wait_for_selector("#answer[aria-busy=false]")
        sent = [each.search for each in served.service.requests if hasattr(each, "search")]

    assert [each.query.image for each in sent] == [PICTURE, PICTURE]
    assert {each.target_modality for each in sent} == {content_pb2.MODALITY_TEXT}


async def test_a_filters_fault_is_marked_under_its_character(open_page: OpenPage) -> None:
    """The server names the character."""
    error = FilterInvalid(why="a value is expected here, not the end (at character 9 of its text)")
    async with gateway(ToldAnswers(error=error).search) as served:
        page = await open_page(served.port)
        await page.click("summary")
        await page.fill("#filter", "style = ")
        await search(page)
        await page.wait_for_selector("#filter-caret:not([hidden])")
        told = await page.inner_text("#filter-fault")
        caret = await page.locator("#filter-caret").bounding_box()
        field = await page.locator("#filter").bounding_box()
        glyph = await page.evaluate(
            """() => {
                const context = document.createElement("canvas").getContext("2d");
                context.font = getComputedStyle(document.querySelector("#filter")).font;
                return context.measureText("0").width;
            }"""
        )
        await shoot(page, "filter")
        await page.fill("#filter", "style = noto")
        assert await page.locator("#filter-caret:not([hidden])").count() == 0

    assert "a value is expected here" in told
    assert caret
    assert field
    # The ninth character's middle: after eight, the border and the padding.
    expected = field["x"] + 1 + 12 + 8.5 * glyph
    assert abs(caret["x"] + caret["width"] / 2 - expected) < glyph / 2


async def test_degradations_are_shown_in_words(open_page: OpenPage) -> None:
    """A shard and half of the rerank."""
    told = ToldAnswers(
        degradations=[pb.DEGRADATION_SHARDS_MISSING, pb.DEGRADATION_RERANK_PARTIAL],
        coverage=pb.Coverage(
            answered_shard_count=1,
            shard_count=2,
            covered_item_count=600,
            item_count=1200,
            missing_shards=[
                pb.MissingShard(shard_number=1, reason="ERROR_REASON_SERVICE_UNAVAILABLE")
            ],
        ),
        rerank=pb.RerankSummary(reranked_depth=4, stop=pb.RERANK_STOP_TIME),
    )
    async with gateway(told.search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        words = await page.inner_text("#degraded")
        await shoot(page, "degraded")

    assert "Searched 600 of 1,200 items" in words
    assert "shard 1 is missing (service unavailable)" in words
    assert "Only the first 4 of 20 candidates were reranked, because the time was used up" in words


async def test_data_never_becomes_markup(open_page: OpenPage) -> None:
    """Not an item's text, not its id. The browser's console would report a blocked script."""
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    item = found(0, 1, logit=1.0)
    item.item_id = hostile
    item.content.text = hostile
    item.attributes[hostile[:20]].text = hostile
    told = ToldAnswers(items=[item])
    async with gateway(told.search) as served:
        page = await open_page(served.port)
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await search_to_the_end(page)
        await page.click("#reranked li:first-child button")
        shown = await page.inner_text("#details")

    assert hostile in shown
    assert not dialogs


async def test_a_token_is_sent_and_never_stored(open_page: OpenPage) -> None:
    """It is gone with the page."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await page.click("summary")
        await page.fill("#token", "secret-of-mine")
        await search_to_the_end(page)
        stored = await page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        )
        sent = served.service.metadata[-1]

    assert sent["authorization"] == "Bearer secret-of-mine"
    assert "secret" not in stored


async def test_an_error_says_what_to_do(open_page: OpenPage) -> None:
    """And an answer that stood before it is gone."""
    told = ToldAnswers()
    async with gateway(told.search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        told.error = Unauthenticated(why="the call has no token")
        await search(page)
        await page.wait_for_selector("#problem:not([hidden])")
        words = await page.inner_text("#problem")
        await shoot(page, "error")

        assert await page.locator("#answer").is_hidden()
        assert await page.locator("#token").is_visible()
    assert "Enter a token under “Filter and more”" in words


async def test_the_operators_note_and_links_are_on_the_page(open_page: OpenPage) -> None:
    """A link of another scheme does not."""
    links: dict[str, Any] = {
        "console_trace_url": "https://traces.example/{trace_id}",
        "console_dashboard_url": "javascript:alert(1)",
    }
    async with gateway(ToldAnswers().search, console_note="This is a test.", **links) as served:
        page = await open_page(served.port)
        assert await page.inner_text("#model-note") == "This is a test."
        await search_to_the_end(page)
        hrefs = await page.eval_on_selector_all("#links a", "all => all.map(each => each.href)")
        trace = served.service.metadata[-1]["traceparent"]

    assert hrefs == [f"https://traces.example/{str(trace).split('-')[1]}"]


async def test_an_item_is_searched_by(open_page: OpenPage) -> None:
    """From its details; the request names it."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await search_to_the_end(page)
        await page.click("#reranked li:first-child button")
        await page.click("text=Search by this item")
        await page.wait_for_selector("#chosen .name")
        await page.wait_for_selector("#answer[aria-busy=false]")
        last = served.service.requests[-1].search

    assert [part.item_id for part in last.query_parts] == [item_id(4)]
    assert final_answer().items[0].item_id == item_id(4)


async def test_the_page_begins_with_the_indexes_that_there_are(open_page: OpenPage) -> None:
    """Their names in the field, the items of the chosen one, and queries to begin with."""
    answers = ToldAnswers()
    async with gateway(answers.search) as served:
        page = await open_page(served.port)
        await page.wait_for_selector("#start:has-text('scenes has 1 picture and 3 texts')")
        names = await page.eval_on_selector_all("#indexes option", "all => all.map(o => o.value)")
        await shoot(page, "start")
        await page.fill("#index", "cars")
        await page.press("#index", "Tab")
        unknown = await page.inner_text("#start")
        await page.fill("#index", "scenes")
        await page.press("#index", "Tab")
        await page.click("#start button")
        await page.wait_for_selector("#reranked [data-item]")
        title = await page.title()
        begun = await page.is_visible("#start")

    searches = [each.search for each in served.service.requests if hasattr(each, "search")]
    assert names == ["pets", "scenes"]
    assert "There are: pets, scenes." in unknown
    assert searches[-1].query.text
    assert title == f"{searches[-1].query.text} – Tandem"
    assert not begun


@pytest.mark.parametrize(("covered", "words"), [(0, "has no pictures. It has 3 texts."), (5, "No")])
async def test_an_empty_answer_says_what_there_is_instead(
    covered: int, words: str, open_page: OpenPage
) -> None:
    """With a button that finds it; and nothing that contradicts an empty answer."""
    coverage = pb.Coverage(
        answered_shard_count=1, shard_count=1, covered_item_count=covered, item_count=covered
    )
    answers = ToldAnswers(items=[], coverage=coverage)
    async with gateway(answers.search) as served:
        page = await open_page(served.port)
        await page.wait_for_selector("#start:has-text('scenes has')")
        await search(page)
        await page.wait_for_selector(f"#status:has-text('{words}')")
        said = await page.inner_text("#status")
        await shoot(page, f"empty-{covered}")
        if not covered:
            await page.click("#status button")
            await page.wait_for_selector("#status:has-text('has no texts')")

    searches = [each.search for each in served.service.requests if hasattr(each, "search")]
    assert "read" not in said
    if not covered:
        assert searches[-1].target_modality == content_pb2.MODALITY_TEXT
