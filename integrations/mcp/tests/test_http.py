"""The server by HTTP: whose token a call has, and whom it answers."""

import subprocess
import sys
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent


async def found(url: str, headers: dict[str, str] | None = None) -> CallToolResult:
    """Calls a tool with these headers."""
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=60.0, trust_env=False) as http,
        McpClient(streamable_http_client(url, http_client=http)) as client,
    ):
        return await client.call_tool("search_texts", {"query": "one frog", "count": 2})


def told(result: CallToolResult) -> str:
    """Returns the first text of a result."""
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


async def test_callers_of_this_machine_use_the_servers_token(url: str) -> None:
    """As with stdio."""
    result = await found(url)

    assert not result.is_error, told(result)
    assert len(result.structured_content["items"]) == 2


async def test_a_callers_token_is_passed_on(
    url: str, tokenless_url: str, system: dict[str, Any]
) -> None:
    """The orchestrator decides: a good one enters a server without a token, a bad one nowhere."""
    good = {"Authorization": f"Bearer {system['token']}"}
    bad = {"Authorization": "Bearer wrong"}

    assert not (await found(tokenless_url, good)).is_error
    for refused in (
        await found(tokenless_url),
        await found(tokenless_url, bad),
        await found(url, bad),
        await found(url, {"Authorization": f"Basic {system['token']}"}),
    ):
        assert refused.is_error
        assert "UNAUTHENTICATED" in told(refused)
        assert system["token"] not in told(refused)


async def test_a_page_of_another_site_is_refused(url: str) -> None:
    """A browser would send its name; loopback alone keeps no site out (DNS rebinding)."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        other_host = await http.post(url, json={}, headers={"Host": "evil.example"})
        other_origin = await http.post(url, json={}, headers={"Origin": "http://evil.example"})

    assert (other_host.status_code, other_origin.status_code) == (421, 403)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--http", "0.0.0.0:0", "--index", "a"], "name by --allowed-host"),
        (["--http", "8000", "--index", "a"], "is not HOST:PORT"),
        ([], "--index"),
        (["--index", "a", "--timeout-seconds", "0"], "cannot end in 0 seconds"),
        (["--index", "a", "--timeout-seconds", "nan"], "cannot end in nan seconds"),
        (["--index", "a", "--timeout-seconds", "inf"], "cannot end in inf seconds"),
        (["--index", "a", "--address", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], why: str) -> None:
    """Before anything is served."""
    ended = subprocess.run(
        [sys.executable, "-m", "tandem_mcp", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode != 0
    assert why in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
