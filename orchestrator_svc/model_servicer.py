"""ModelService: describes the models of the downstream services."""

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from tandem.contract.model_description import MODEL_WIRE
from tandem.search.orchestrator import Orchestrator
from tandem.v1 import model_service_pb2, model_service_pb2_grpc


class SearchModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Describes the encoder's model, with the cross-encoder's rules if that is available."""

    def __init__(self, orchestrator: Orchestrator, deadline: CallDeadline) -> None:
        self.orchestrator = orchestrator
        self._deadline = deadline

    async def DescribeModel(
        self,
        request: model_service_pb2.DescribeModelRequest,
        context: grpc.aio.ServicerContext,
    ) -> model_service_pb2.DescribeModelResponse:
        """Describes the encoder's model, with the rules of the first rerank_svc that answers."""
        model = await self.orchestrator.describe_model(self._deadline.of_call(context))
        return model_service_pb2.DescribeModelResponse(model=MODEL_WIRE.to_proto(model))
