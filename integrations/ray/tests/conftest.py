"""The running system, and the command next to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem.client import Access, Client

SCENES = "TANDEM_SCENE_SYSTEM"


class Command:
    """`python -m tandem_ray` in a folder, with the system's address, token and authority."""

    def __init__(self, system: dict[str, Any], folder: Path) -> None:
        self._address, self.folder = system["address"], folder
        self._variables = os.environ | {
            "TANDEM_TOKEN": system["token"],
            "TANDEM_AUTHORITY_FILE": system["authority_file"],
        }

    def start(self, arguments: str) -> subprocess.Popen[str]:
        """Starts it, with its output in pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "tandem_ray", *arguments.split(), "--address", self._address],
            cwd=self.folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments: str) -> tuple[int, str, str]:
        """Returns its status and what it printed."""
        process = self.start(arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err


@pytest.fixture(scope="session")
def system() -> dict[str, Any]:
    """What tests/support/scene_system.py says of the system that it started."""
    if SCENES not in os.environ:
        pytest.fail(f"{SCENES} is not set: run make test-integrations", pytrace=False)
    told: dict[str, Any] = json.loads(os.environ[SCENES])
    return told


@pytest.fixture
def command(system: dict[str, Any], tmp_path: Path) -> Command:
    """The command, in a folder of this test."""
    return Command(system, tmp_path)


@pytest.fixture(scope="session")
def access(system: dict[str, Any]) -> Access:
    """What the system lets in."""
    return Access(system["token"], Path(system["authority_file"]).read_bytes())


@pytest.fixture(scope="session")
def sdk(system: dict[str, Any], access: Access) -> Iterator[Client]:
    """The SDK, which finds what was stored."""
    with Client(system["address"], timeout_seconds=60.0, access=access) as client:
        yield client
