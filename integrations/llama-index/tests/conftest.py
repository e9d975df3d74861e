"""The running system."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    """The SDK, which answers are compared with."""
    with Client(system["address"], timeout_seconds=60.0, access=access) as client:
        yield client


@pytest.fixture(scope="session")
def caption(system: dict[str, Any]) -> str:
    """A caption of the first picture."""
    text: str = next(iter(system["captions"].values()))
    return text
