"""`tandem-mcp`: serves MCP over stdio or HTTP."""

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from tandem.client import Access
from tandem.errors import TandemError
from tandem_mcp.callers import CallerClients
from tandem_mcp.server import ServedIndexes, make_server
from tandem_mcp.standard_input import whole_unicode

_PATH = "/mcp"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until stdin ends, or until a signal."""
    given = _parser().parse_args(arguments)
    host, port = given.http or ("", 0)
    is_local = not host or _is_loopback(host)
    try:
        server = make_server(
            ServedIndexes(
                address=given.address,
                index_ids=tuple(given.index),
                access=Access.from_environment(),
                timeout_seconds=given.timeout_seconds,
                longest_side=given.longest_side,
                # Beyond this machine each caller has to show a token of its own.
                is_token_lent=is_local,
            )
        )
        if not is_local and not given.allowed_host:
            raise ValueError(
                f"{host} is not loopback: name by --allowed-host what callers call this server"
            )
        if given.http:
            anyio.run(_serve_http, server, host, port, given.allowed_host)
        else:
            sys.stdin = whole_unicode(sys.stdin.buffer)
            server.run("stdio")
    except (OSError, TandemError, ValueError) as error:
        sys.exit(f"tandem-mcp: {error}")


async def _serve_http(
    server: MCPServer[CallerClients], host: str, port: int, allowed_hosts: list[str]
) -> None:
    security = None  # By default MCP accepts the names of loopback there.
    if allowed_hosts:
        security = TransportSecuritySettings(
            allowed_hosts=allowed_hosts,
            allowed_origins=[f"https://{each}" for each in allowed_hosts],
        )
    # Calls have no state in common, so replicas need no sticky sessions.
    app = server.streamable_http_app(
        streamable_http_path=_PATH,
        stateless_http=True,
        json_response=True,
        host=host,
        transport_security=security,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        shown = f"[{host}]" if ":" in host else host
        print(
            f"MCP at http://{shown}:{listening.getsockname()[1]}{_PATH}",
            file=sys.stderr,
            flush=True,
        )
        config = uvicorn.Config(app, log_level="warning", server_header=False)
        await uvicorn.Server(config).serve(sockets=[listening])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tandem-mcp",
        description="An MCP server over Tandem. Token and certificates are in TANDEM_TOKEN, "
        "TANDEM_AUTHORITY_FILE, TANDEM_CERTIFICATE_FILE and TANDEM_KEY_FILE.",
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("TANDEM_ADDRESS", "127.0.0.1:7400"),
        help="host:port of the orchestrator; by default TANDEM_ADDRESS, or %(default)s",
    )
    parser.add_argument(
        "--index",
        action="append",
        required=True,
        help="an index that tools may search; may repeat, the first is the default",
    )
    parser.add_argument(
        "--http", type=_host_and_port, metavar="HOST:PORT", help="serve HTTP instead of stdio"
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a Host header to accept, with its port if it has one; may repeat",
    )
    parser.add_argument(
        "--timeout-seconds", type=float, default=10.0, help="deadline of a call of Tandem"
    )
    parser.add_argument(
        "--longest-side", type=int, default=512, help="scale pictures down to this many pixels"
    )
    return parser


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    main()
