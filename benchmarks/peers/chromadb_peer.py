"""chromadb: HNSW, in process and behind its own HTTP server, over the same files."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from measurement import (
    F32,
    I64,
    Search,
    Vectors,
    least_effort,
    peer_arguments,
    print_results,
    recall,
    time_clients,
    time_searches,
)

EFFORTS = [{"ef_search": 1 << power} for power in range(5, 12)]
_ADD_COUNT = 5_000
_START_SECONDS = 60.0


@dataclass(frozen=True)
class ServedSearch:
    """Connects a client to the server."""

    port: int

    @contextmanager
    def __call__(self) -> Iterator[Search]:
        """Opens a connection of its own."""
        client = chromadb.HttpClient(host="127.0.0.1", port=self.port)
        yield _search(client.get_collection("items"))


def main() -> None:
    """Builds in process, tunes behind the server, and times both."""
    arguments = peer_arguments(__doc__ or "")
    folder = Path(arguments.work)
    vectors = Vectors(arguments.vectors)
    build_seconds = _build(folder, vectors)
    disk_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    queries_QD = vectors.queries_QD()
    k = arguments.k

    with ExitStack() as stack:

        def search_with(effort: dict[str, Any]) -> Search:
            stack.close()
            _set_effort(folder, effort)
            return stack.enter_context(ServedSearch(stack.enter_context(_served(folder)))())

        effort, found = least_effort(EFFORTS, search_with, vectors, k, arguments.recall)
    with _served(folder) as port:
        connect = ServedSearch(port)
        with connect() as search:
            one_client = time_searches(search, queries_QD, k, arguments.searches)
        clients = time_clients(
            connect, queries_QD, k, max(1, arguments.searches // 8), arguments.clients
        )
    served = {
        "kind": "HNSW served",
        "effort": effort,
        "recall": found,
        "one_client": one_client.summary(),
        "clients": clients.summary(),
    }
    with chromadb.PersistentClient(path=str(folder)) as client:
        search = _search(client.get_collection("items"))
        in_process = {
            "kind": "HNSW in process",
            "effort": effort,
            "recall": recall(search, vectors, k),
            "build_seconds": build_seconds,
            "disk_bytes": disk_bytes,
            "one_client": time_searches(search, queries_QD, k, arguments.searches).summary(),
        }
    print_results([in_process, served])


def _build(folder: Path, vectors: Vectors) -> float:
    """Returns the seconds that it took."""
    items_ND = vectors.items_ND()
    with chromadb.PersistentClient(path=str(folder)) as client:
        collection = client.create_collection(
            "items",
            configuration={"hnsw": {"space": "ip", "ef_construction": 100, "max_neighbors": 16}},
        )
        start_time = time.perf_counter()
        for start in range(0, len(items_ND), _ADD_COUNT):
            block_ND = np.ascontiguousarray(items_ND[start : start + _ADD_COUNT])
            ids = [str(start + place) for place in range(len(block_ND))]
            collection.add(ids=ids, embeddings=block_ND)
        return time.perf_counter() - start_time


def _set_effort(folder: Path, effort: dict[str, Any]) -> None:
    """Writes it into the files, for who opens them next.

    chromadb 1.5.9 keeps searching an open collection with the earlier effort.
    """
    with chromadb.PersistentClient(path=str(folder)) as client:
        client.get_collection("items").modify(configuration={"hnsw": effort})


def _search(collection: Any) -> Search:  # noqa: ANN401
    def search(query_D: F32, k: int) -> I64:
        found = collection.query(query_embeddings=[query_D], n_results=k, include=[])
        return np.array([int(item_id) for item_id in found["ids"][0]])

    return search


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = str(Path(sys.executable).parent / "chroma")
    server = subprocess.Popen(
        [command, "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)],
        stdout=sys.stderr,
    )
    try:
        _wait(port)
        yield port
    finally:
        server.kill()
        server.wait()


def _wait(port: int) -> None:
    end_time = time.monotonic() + _START_SECONDS
    while True:
        try:
            chromadb.HttpClient(host="127.0.0.1", port=port).heartbeat()
            return
        except Exception:  # its HTTP client's error while nothing listens
            if time.monotonic() > end_time:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
