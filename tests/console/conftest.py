"""Chromium, and pages in it that must neither break the content policy nor throw."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.console.pages import OpenPage

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

# Debian's, or where it lies elsewhere; no browser is downloaded.
CHROMIUM = os.environ.get("TANDEM_CHROMIUM") or shutil.which("chromium") or ""


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests."""
    playwright = pytest.importorskip("playwright.async_api", reason="make test-console installs it")
    if not CHROMIUM:
        pytest.skip("there is no chromium")
    async with playwright.async_playwright() as started:
        # Containers run as root, where Chromium has no sandbox of its own.
        opened = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        await opened.close()


@pytest.fixture
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Opens the console of the gateway at a port; fails if anything was reported on the way."""
    faults: list[str] = []
    async with AsyncExitStack() as contexts:

        async def opened(port: int, **options: Any) -> Page:
            context = await browser.new_context(
                **{"viewport": {"width": 1280, "height": 1000}} | options
            )
            contexts.push_async_callback(context.close)
            page = await context.new_page()
            page.set_default_timeout(60_000)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda message: _note(message, faults))
            await page.goto(f"http://127.0.0.1:{port}/")
            return page

        yield opened
    assert not faults


def _note(message: Any, faults: list[str]) -> None:
    # A call that the server refuses is reported too, as "Failed to load resource".
    if message.type == "error" and "Failed to load resource" not in message.text:
        faults.append(message.text)
