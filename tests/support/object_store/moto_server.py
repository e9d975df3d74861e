"""Starts moto's server of S3, which `make test-object-store` installs next to the environment."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUCKET = "backups"
_PACKAGES = Path(__file__).parents[3] / ".venv" / "object_store"
_START_SECONDS = 60.0
_READY = " * Running on "


@contextmanager
def moto_server() -> Iterator[str]:
    """Yields the URL of a server with an empty bucket; skips the test where moto is missing."""
    if not (_PACKAGES / "moto").is_dir():
        pytest.skip("moto is not installed: make test-object-store")
    environment = os.environ | {"PYTHONPATH": str(_PACKAGES), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        try:
            end_time = time.monotonic() + _START_SECONDS
            line = ""
            while not line.startswith(_READY) and time.monotonic() < end_time and server.stderr:
                line = server.stderr.readline()
            endpoint = line.removeprefix(_READY).strip()
            request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=_START_SECONDS).close()
            yield endpoint
        finally:
            server.kill()


def s3_environment(endpoint: str) -> dict[str, str]:
    """Returns what leads obstore to a server of S3."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
