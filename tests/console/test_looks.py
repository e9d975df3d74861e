"""The console in light and dark colours and on a phone: no fault by axe, nothing overflows."""

from __future__ import annotations

from typing import Any

import pytest

from tandem.errors import IndexNotFound
from tests.support.console.pages import (
    AXE,
    OpenPage,
    axe_violations,
    search,
    search_to_the_end,
    shoot,
)
from tests.support.console.told_answers import ToldAnswers, held_items
from tests.support.gateway_svc.running import gateway

LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}

pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="make test-console installs axe-core")


@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_no_fault(look: str, open_page: OpenPage) -> None:
    """At the start, with an answer, with all options, and with an item open."""
    note = "This is the demo's model: it knows composed scenes of emoji."
    async with gateway(ToldAnswers().search, console_note=note) as served:
        served.service.held = held_items()
        page = await open_page(served.port, reduced_motion="reduce", **LOOKS[look])
        await page.wait_for_selector("#cards img")
        faults = await axe_violations(page)
        await shoot(page, f"{look}-start")
        await search_to_the_end(page)
        faults += await axe_violations(page)
        await shoot(page, look)
        await page.click("summary")
        faults += await axe_violations(page)
        await page.click("#reranked li:nth-child(2) button")
        faults += await axe_violations(page)
        await shoot(page, f"{look}-details")

    assert faults == []


async def test_axe_would_find_a_fault(open_page: OpenPage) -> None:
    """The test above could pass by accident."""
    async with gateway(ToldAnswers().search) as served:
        page = await open_page(served.port)
        await page.evaluate("document.querySelector('#words').removeAttribute('aria-label')")
        await page.evaluate("document.querySelector('#words').removeAttribute('placeholder')")
        faults = await axe_violations(page)

    assert [each for each in faults if each.startswith("label")]


@pytest.mark.parametrize("width", [320, 1280])
async def test_nothing_is_wider_than_the_window(width: int, open_page: OpenPage) -> None:
    """No page scrolls sideways."""
    async with gateway(ToldAnswers().search) as served:
        served.service.held = held_items()
        page = await open_page(served.port, viewport={"width": width, "height": 800})
        await page.wait_for_selector("#cards img")
        at_the_start = await page.evaluate("document.documentElement.scrollWidth")
        await search_to_the_end(page)
        await page.click("summary")
        widest = await page.evaluate("document.documentElement.scrollWidth")

    assert max(at_the_start, widest) <= width


async def test_an_error_with_a_long_word_is_wrapped(open_page: OpenPage) -> None:
    """An index's id may have 63 characters, with none to break after."""
    told = ToldAnswers(error=IndexNotFound(index_id="a" * 63))
    async with gateway(told.search) as served:
        page = await open_page(served.port, **LOOKS["phone"])
        await search(page)
        await page.wait_for_selector("#problem:not([hidden])")
        wide = await page.evaluate("document.documentElement.scrollWidth")

        assert "a" * 63 in await page.inner_text("#problem")
    assert wide <= 390
