"""The running system, and the MCP server next to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters

from tandem.client import Access, Client

SCENES = "TANDEM_SCENE_SYSTEM"


@pytest.fixture(scope="session")
def system() -> dict[str, Any]:
    """What tests/support/scene_system.py says of the system that it started."""
    if SCENES not in os.environ:
        pytest.fail(f"{SCENES} is not set: run make test-integrations", pytrace=False)
    told: dict[str, Any] = json.loads(os.environ[SCENES])
    return told


@pytest.fixture(scope="session")
def access(system: dict[str, Any]) -> Access:
    """What the system lets in."""
    return Access(system["token"], Path(system["authority_file"]).read_bytes())


@pytest.fixture(scope="session")
def sdk(system: dict[str, Any], access: Access) -> Iterator[Client]:
    """The SDK, which the tools' answers are compared with."""
    with Client(system["address"], timeout_seconds=60.0, access=access) as client:
        yield client


@pytest.fixture(scope="session")
def credentials(system: dict[str, Any]) -> dict[str, str]:
    """The environment that a server gets in."""
    return {"TANDEM_TOKEN": system["token"], "TANDEM_AUTHORITY_FILE": system["authority_file"]}


@pytest.fixture(scope="session")
def stdio(system: dict[str, Any], credentials: dict[str, str]) -> StdioServerParameters:
    """The server as a client starts it."""
    return StdioServerParameters(
        command=sys.executable, args=server_arguments(system["address"]), env=credentials
    )


@pytest.fixture(scope="session")
def url(system: dict[str, Any], credentials: dict[str, str]) -> Iterator[str]:
    """The server by HTTP, with the system's token."""
    yield from served(system["address"], credentials)


@pytest.fixture(scope="session")
def tokenless_url(system: dict[str, Any], credentials: dict[str, str]) -> Iterator[str]:
    """The server by HTTP, which has no token of its own."""
    authority = {"TANDEM_AUTHORITY_FILE": credentials["TANDEM_AUTHORITY_FILE"]}
    yield from served(system["address"], authority)


def server_arguments(address: str) -> list[str]:
    """Returns the arguments of a server for two indexes, of which the second does not exist."""
    named = ["--index", "scenes", "--index", "missing"]
    return ["-m", "tandem_mcp", "--address", address, "--timeout-seconds", "60", *named]


def served(address: str, credentials: dict[str, str]) -> Iterator[str]:
    """Runs a server on a free port, and yields its URL."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    process = subprocess.Popen(
        [sys.executable, *server_arguments(address), "--http", "127.0.0.1:0"],
        env=environment | credentials,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("MCP at "), line
        yield line.removeprefix("MCP at ").strip()
    finally:
        process.terminate()
        process.communicate()
