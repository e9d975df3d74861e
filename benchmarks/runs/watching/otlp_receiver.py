"""Takes spans over OTLP as an OpenTelemetry collector does, and remembers their traces."""

from collections import defaultdict
from concurrent import futures
from typing import Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc


class OtlpReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on one port; may be away for a while."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.services_of_trace: dict[str, set[str]] = defaultdict(set)
        """Names of the services that sent spans of a trace, by its id in hexadecimal."""
        self.span_count = 0
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Begins to listen; raises RuntimeError where the port cannot be had."""
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        """Is away from now on."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def Export(
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        """Takes spans."""
        for resource in request.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.span_count += len(scope.spans)
                for span in scope.spans:
                    self.services_of_trace[span.trace_id.hex()].add(names.get("service.name", ""))
        return pb.ExportTraceServiceResponse()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
