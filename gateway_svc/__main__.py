"""Wires and runs the gateway: python -m gateway_svc."""

import asyncio
import sys

import tandem.chassis.telemetry.plain_structlog  # noqa: F401
from gateway_svc.settings import IN_PROCESS, GatewaySettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.calls.channels import open_channel
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.tls import load_identity_or_exit
from tandem.installation import PackageMissing, missing_package

try:
    from gateway_svc.serving import serve
except ModuleNotFoundError as error:
    sys.exit(str(PackageMissing("gateway_svc", missing_package(error))))


async def main(settings: GatewaySettings) -> None:
    """Serves until a signal stops it."""
    if settings.orchestrator_address == IN_PROCESS:
        sys.exit(f"gateway_svc: python -m merged_svc serves HTTP {IN_PROCESS}")
    identity = load_identity_or_exit()
    channel = open_channel(settings.orchestrator_address, identity)
    await serve(settings, channel=channel, identity=identity, guard=load_guard_or_exit(identity))


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(GatewaySettings, "GATEWAY_")))
