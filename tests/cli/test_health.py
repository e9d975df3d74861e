"""`tandem health`: the exit status is the answer."""

import asyncio
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.calls.credentials import server_credentials
from tandem.chassis.health.health import LIVENESS, Health
from tandem.chassis.serve.server import make_server
from tandem.cli.app import app
from tests.chassis.serve.test_serve import started
from tests.support.chassis.authority import Files


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


async def test_it_presents_certificates_like_every_command(tmp_path: Path) -> None:
    """A service that asks for one answers those who have it, by the variables of all commands."""
    authority = trustme.CA()
    shown = {name: Files(tmp_path / name) for name in ("server", "operator", "stranger")}
    shown["server"].write(authority)
    shown["operator"].write(authority, "operator")
    shown["stranger"].write(trustme.CA(), "operator", trusted=(authority,))
    server = await make_server(
        "locked", Health("locked", []), lambda _: None, [], options=SERVER_OPTIONS
    )
    credentials = server_credentials(shown["server"].identity())
    address = f"localhost:{server.add_secure_port('localhost:0', credentials)}"
    await server.start()
    try:
        results = {
            name: await asyncio.to_thread(
                CliRunner(env=environment).invoke,  # type: ignore[arg-type]
                app,
                ["health", address, "--service", LIVENESS],
            )
            for name, environment in {
                "nothing": {},
                "operator": variables(shown["operator"]),
                "stranger": variables(shown["stranger"]),
                # A token is not a certificate, and health asks for none.
                "token": {"TANDEM_TOKEN": "token"},
            }.items()
        }
    finally:
        await server.stop(None)

    told = {name: result.output.strip() for name, result in results.items()}
    assert told.pop("operator") == "SERVING"
    assert all(f"{address}: UNAVAILABLE" in each for each in told.values())
    assert {name for name, result in results.items() if result.exit_code == 0} == {"operator"}


def variables(files: Files) -> dict[str, str | None]:
    """Returns what names the files to every command."""
    return {
        "TANDEM_AUTHORITY_FILE": str(files.folder / "ca.crt"),
        "TANDEM_CERTIFICATE_FILE": str(files.folder / "tls.crt"),
        "TANDEM_KEY_FILE": str(files.folder / "tls.key"),
    }
