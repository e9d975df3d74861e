"""What tests do with a page of the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT = Path(__file__).parents[3]
SCREENSHOTS = ROOT / "build/console"
AXE = ROOT / "console/node_modules/axe-core/axe.min.js"

OpenPage = Callable[..., Awaitable["Page"]]


async def search(page: Page, text: str = "two dogs left of one umbrella") -> None:
    """Types a query and presses Enter."""
    await page.fill("#words", text)
    await page.press("#words", "Enter")


async def search_to_the_end(page: Page) -> None:
    """Searches, and waits for the final order."""
    await search(page)
    await page.wait_for_selector("#reranked [data-item]")


async def order(page: Page, column: str) -> list[str]:
    """Returns the item ids of a column, from the top."""
    ids: list[str] = await page.eval_on_selector_all(
        f"#{column} [data-item]", "cards => cards.map(card => card.dataset.item)"
    )
    return ids


async def shoot(page: Page, name: str) -> None:
    """Takes a picture of the page, for a person to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(
        path=SCREENSHOTS / f"{name}.png",
        # A dialog covers what can be seen, not the whole page.
        full_page=await page.locator("dialog[open]").count() == 0,
        animations="disabled",
    )


async def axe_violations(page: Page) -> list[str]:
    """Returns what axe finds wrong with the page, one line each."""
    # Over the debugger: the content policy lets no script of others into the page.
    await page.evaluate(AXE.read_text() + "; undefined")
    found: list[dict[str, Any]] = await page.evaluate("axe.run().then(run => run.violations)")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:120]} {each['nodes'][0]['failureSummary']}"
        for each in found
    ]
