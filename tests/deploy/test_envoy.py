"""deploy/envoy: JSON, gRPC-Web and errors through a real Envoy.

`make test-official` brings it, and .ci/run runs that; elsewhere the test is skipped.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tandem.errors import IndexNotFound
from tandem.stack.free_ports import free_ports
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server
from tests.support.deploy.rendered import ROOT

SEARCH = "/tandem.v1.SearchService/SearchItems"
STREAM = "/tandem.v1.SearchService/StreamSearchItems"
CONFIG = ROOT / "deploy" / "envoy" / "envoy.yaml"


async def found_one(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Finds an item named after the query, in one index."""
    if request.index_id == "nowhere":
        raise IndexNotFound(index_id="nowhere")
    return pb.SearchItemsResponse(items=[pb.RankedItem(item_id=request.query.text)])


def config(folder: Path, port: int, orchestrator: str) -> Path:
    """Writes the shipped configuration with a test's ports and descriptors."""
    from grpc_tools import protoc

    descriptors = folder / "tandem.binpb"
    protos = sorted(str(each) for each in (ROOT / "protos/tandem/v1").glob("*.proto"))
    include = str(Path(protoc.__file__).parent / "_proto")
    arguments = [f"-I{ROOT / 'protos'}", f"-I{include}", "--include_imports"]
    assert protoc.main(["protoc", *arguments, f"--descriptor_set_out={descriptors}", *protos]) == 0
    text = CONFIG.read_text(encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load(text)
    listener = tree["static_resources"]["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = port
    cluster = tree["static_resources"]["clusters"][0]
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    endpoint["address"]["socket_address"]["port_value"] = int(orchestrator.rpartition(":")[2])
    filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    filters[1]["typed_config"]["proto_descriptor"] = str(descriptors)
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


@asynccontextmanager
async def envoy(folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Runs Envoy before a SearchService, and yields a client of it."""
    [port] = free_ports(1)
    async with search_server(found_one) as (address, _):
        path = config(folder, port, address)
        binary = Path(sys.modules["envoy"].__file__ or "").parent / "_bin" / "envoy"
        process = await asyncio.create_subprocess_exec(
            str(binary), "--config-path", str(path), "--concurrency", "1", "--use-dynamic-base-id",
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60.0
        ) as client:
            try:
                await until_it_listens(client)
                yield client
            finally:
                process.kill()
                await process.wait()


async def until_it_listens(client: httpx2.AsyncClient) -> None:
    """Waits for its port."""
    async with asyncio.timeout(120.0):
        while True:
            try:
                await client.get("/")
                return
            except httpx2.TransportError:
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_envoy_does_the_same_at_an_edge(tmp_path: Path) -> None:
    pytest.importorskip("envoy")
    async with envoy(tmp_path) as client:
        found = await client.post(SEARCH, json={"query": {"text": "a dog"}, "index_id": "scenes"})
        missing = await client.post(SEARCH, json={"index_id": "nowhere"})
        request = pb.StreamSearchItemsRequest()
        request.search.query.text = "a dog"
        message = request.SerializeToString()
        streamed = await client.post(
            STREAM,
            content=struct.pack("!BI", 0, len(message)) + message,
            headers={"content-type": "application/grpc-web+proto"},
        )
        health = await client.post("/grpc.health.v1.Health/Check", json={})
        internal = await client.post("/tandem.v1.IndexService/GetItems", json={})

    assert found.json()["items"][0]["itemId"] == "a dog"
    # Envoy writes no body: it knows no type of the status's details. The reason is in a header.
    assert missing.status_code == 404
    assert missing.headers["tandem-reason"] == "INDEX_NOT_FOUND"
    assert streamed.content.count(b"a dog") == 2
    assert b"grpc-status:0" in streamed.content
    assert health.status_code in (403, 404)
    assert internal.status_code in (403, 404)
