"""Runs encoder_svc: `python -m encoder_svc`."""

import asyncio

from encoder_svc.assembly import encoder_service
from encoder_svc.settings import EncoderSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.serve.server import serve
from tandem.chassis.tls import load_identity_or_exit


async def main(settings: EncoderSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    identity = load_identity_or_exit()
    async with encoder_service(settings, identity) as service:
        await serve(settings, service, identity=identity, guard=load_guard_or_exit(identity))


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(EncoderSettings, "ENCODER_")))
