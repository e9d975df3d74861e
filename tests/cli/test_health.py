"""`tandem health`: the exit status is the answer."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.chassis.health import LIVENESS
from tandem.cli.app import app
from tests.chassis.test_serve import started


@pytest.mark.parametrize(
    ("service", "code", "told"), [("", 1, "NOT_SERVING"), (LIVENESS, 0, "SERVING")]
)
async def test_a_cold_service_is_alive_and_not_ready(
    tmp_path: Path, service: str, code: int, told: str
) -> None:
    """One process, two questions, two answers."""
    (tmp_path / "cold").touch()
    async with started(tmp_path) as running:
        await running.event("not warm yet")

        result = CliRunner().invoke(
            app, ["health", f"127.0.0.1:{running.port}", "--service", service]
        )

    assert result.exit_code == code
    assert result.output.strip().endswith(told)


def test_where_nothing_listens_is_not_healthy() -> None:
    """Port 1 is nobody's."""
    result = CliRunner().invoke(app, ["health", "127.0.0.1:1"])

    assert result.exit_code == 1
    assert "127.0.0.1:1: UNAVAILABLE" in result.output
