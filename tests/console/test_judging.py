"""The page of `tandem golden judge`, in a browser: by keyboard, and no judgement is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tandem.cli.golden.judge_server import Content, JudgeServer
from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery, read_judged_queries
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.golden_set import POOL_NAME, Judgements, write_golden_set
from tandem.platform.files.json_object import read_object
from tests.console.test_looks import LOOKS
from tests.support.console.pages import axe_violations, shoot

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

RECORDS = list(scene_records("test", 1, 8))
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
ITEMS: dict[str, Content] = {each.record_id: each.image.read() for each in RECORDS}
ITEMS |= {"a/ text ü%": MARKUP, "gone": None}
QUERY = JudgedQuery("q 1", RECORDS[0].captions[0].text, Modality.IMAGE, {})


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    write_golden_set(tmp_path / "golden", [QUERY], {"be": {"q 1": list(ITEMS)}}, 20, 1, {})
    return tmp_path / "golden"


@pytest.fixture(name="server")
def _server(folder: Path) -> Iterator[JudgeServer]:
    """Serves the folder from a thread, with contents of the demo's drawings."""
    contents = {"query": lambda _: str(QUERY.content), "item": ITEMS.__getitem__}
    with (
        closing(Judgements(folder)) as judgements,
        JudgeServer(0, read_object(folder / POOL_NAME), {"q 1": {}}, contents, judgements) as made,
    ):
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def address(server: JudgeServer) -> str:
    """Returns what the command prints."""
    return f"http://127.0.0.1:{server.server_port}/#{server.token}"


async def shows(page: Page, count: int) -> None:
    """Waits until so many pairs are judged and the next is shown."""
    await page.wait_for_selector(f"#progress:has-text('{count} of 10 pairs judged')")
    await page.wait_for_selector("main[aria-busy=false]")


async def test_a_golden_set_is_judged_by_keyboard(
    browser: Browser, server: JudgeServer, folder: Path
) -> None:
    """Through a page that is closed in the middle; contents never are markup."""
    context = await browser.new_context(viewport={"width": 1000, "height": 800})
    page = await context.new_page()
    await page.goto(address(server))
    await shows(page, 0)
    assert await page.inner_text("#query") == QUERY.content
    await page.keyboard.press("s")
    await shows(page, 0)
    for count, key in enumerate("mnmu", start=1):
        await page.keyboard.press(key)
        await shows(page, count if key != "u" else 2)
    await page.close()

    page = await context.new_page()
    await page.goto(address(server))
    await shows(page, 2)
    assert await page.is_disabled("#undo")
    for count in range(3, 10):
        await page.keyboard.press("n")
        await shows(page, count)
    assert "1 no longer in the index" in await page.inner_text("#progress")
    assert "All pairs" in await page.inner_text("#query")
    assert "owned" not in await page.title()
    await context.close()

    [judged] = read_judged_queries(folder)
    assert judged.grades.keys() == ITEMS.keys() - {"gone"}
    assert sorted(judged.grades.values()) == [0] * 8 + [1]


@pytest.mark.parametrize(("look", "options"), LOOKS.items())
async def test_the_page_for_judging_reads_well(
    browser: Browser, server: JudgeServer, look: str, options: dict[str, Any]
) -> None:
    """axe finds nothing, in light and dark and on a phone; the server's end is named."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    await page.goto(address(server))
    await shows(page, 0)
    for _ in range(10):
        if await page.locator("#item img").count():
            break
        await page.keyboard.press("s")
        await shows(page, 0)
    await shoot(page, f"judging_{look}")
    assert await axe_violations(page) == []
    server.token = "another"
    await page.keyboard.press("m")
    await page.wait_for_selector("#problem:has-text('open the address')")
    await context.close()
