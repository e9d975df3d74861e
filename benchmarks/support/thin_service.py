"""FAISS behind gRPC and nothing else: the least that a server around it costs.

    python -m benchmarks.support.thin_service INDEX_FILE [NAME=VALUE ...]

It answers IndexService.SearchEmbeddings with what the index alone finds, checks nothing and keeps
nothing: the control for index_svc, which differs from it by all that index_svc is for.
"""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import faiss as faiss_module
import grpc
import numpy as np

from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.health.health import Health
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import (
    IndexServiceServicer,
    add_IndexServiceServicer_to_server,
)

faiss: Any = faiss_module  # its stubs lack much of what is used here

_STOP_SECONDS = 10.0


class ThinService:
    """A process that serves the index of a file."""

    def __init__(self, index_file: Path, parameters: Mapping[str, float]) -> None:
        """Starts it; returns once it listens."""
        arguments = [f"{name}={value:g}" for name, value in parameters.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.support.thin_service", str(index_file), *arguments],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        if not self.address:
            raise RuntimeError("the thin service does not serve; its error is above")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(_STOP_SECONDS)


class _Servicer(IndexServiceServicer):
    def __init__(self, index: Any) -> None:  # noqa: ANN401 (SWIG)
        self._index = index

    async def SearchEmbeddings(
        self, request: pb.SearchEmbeddingsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchEmbeddingsResponse:
        query_D = np.frombuffer(request.queries[0].values, "<f4")
        similarities, rows = self._index.search(query_D[np.newaxis], request.retrieve_k)
        found = zip(rows[0].tolist(), similarities[0].tolist(), strict=True)
        hits = [pb.Hit(item_id=str(row), similarity=similarity) for row, similarity in found]
        return pb.SearchEmbeddingsResponse(hit_lists=[pb.HitList(hits=hits)])


async def _serve(index: Any) -> None:  # noqa: ANN401 (SWIG)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_IndexServiceServicer_to_server(_Servicer(index), server)
    Health("thin", ()).register(server)  # which the clients' channels watch
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    """Serves until it is ended."""
    faiss.omp_set_num_threads(1)  # as index_svc does
    index = faiss.read_index(sys.argv[1])
    for each in sys.argv[2:]:
        name, _, value = each.partition("=")
        faiss.ParameterSpace().set_index_parameter(index, name, float(value))
    asyncio.run(_serve(index))


if __name__ == "__main__":
    main()
