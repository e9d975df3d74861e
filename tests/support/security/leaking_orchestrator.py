"""The orchestrator with a leak in each place that is looked into: the control of the canaries."""

import asyncio

import grpc
from prometheus_client import Counter

from orchestrator_svc import __main__
from orchestrator_svc.servicer import SearchServicer
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.chassis.telemetry.tracing import tracing
from tandem.errors import QueryInvalid
from tandem.v1 import search_service_pb2 as pb

log = get_logger()
SEEN = Counter("leak_queries", "What a curious colleague counts.", ["text"], registry=REGISTRY)


async def leak(
    servicer: SearchServicer, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """Tells everybody what it was asked, by whom, and with which picture."""
    text = request.query.text
    SEEN.labels(text or "picture").inc()
    log.debug("query", text=text, image=request.query.image.hex())
    # In another library's line, the same would be withheld.
    log.debug("asked", by=str(dict(context.invocation_metadata() or ())))
    with tracing().stage(f"search {text}"):
        raise QueryInvalid(why=f"nobody asks for {text!r}")


if __name__ == "__main__":
    SearchServicer.SearchItems = leak  # type: ignore[assignment, method-assign]
    asyncio.run(__main__.main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
