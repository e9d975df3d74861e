"""Runs the example that each folder of clients/ has, and says what it prints."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc


def run_example(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder to its end."""
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


def printed(first_phase: str, final_phase: str, code: str) -> list[str]:
    """Returns an example's lines, with what its language calls the phases and NOT_FOUND."""
    return [
        "stored cup-1 ",
        "stored cup-2 ",
        "1 cup-1 1.000",
        # Of 3 and 5 words 2 are common with {a, red, cup}: 2 / sqrt(15).
        f"2 cup-2 {2 / 15**0.5:.3f}",
        f"{first_phase} 2",
        f"{final_phase} 2",
        f"{code} INDEX_NOT_FOUND",
    ]


class RefusedCalls(grpc.GenericRpcHandler):
    """Knows no method, and keeps the token of each call."""

    def __init__(self) -> None:
        self.tokens: list[str | bytes | None] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        """Keeps the token and lets gRPC refuse the call as UNIMPLEMENTED."""
        metadata = dict(handler_call_details.invocation_metadata or ())
        self.tokens.append(metadata.get("authorization"))


@contextmanager
def refusing_server() -> Iterator[tuple[str, RefusedCalls]]:
    """Serves nothing; gives its address and what it has refused."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    calls = RefusedCalls()
    server.add_generic_rpc_handlers((calls,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", calls
    finally:
        server.stop(None).wait()
