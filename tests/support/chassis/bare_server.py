"""A grpc.aio server with nothing of ours, which says how it ends: the control of hostile paths."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import grpc


async def _unheard(request: bytes, context: grpc.aio.ServicerContext) -> NoReturn:
    raise NotImplementedError


async def main() -> None:
    """Serves one method until it is stopped."""
    server = grpc.aio.server()
    handlers = {"Method": grpc.unary_unary_rpc_method_handler(_unheard)}
    server.add_registered_method_handlers("Service", handlers)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    try:
        await server.wait_for_termination()
    finally:
        print("ended", flush=True)


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(main())
