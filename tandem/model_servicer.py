"""ModelService, for every service with a model behind it."""

import grpc

from tandem.model_description import ModelDescription, model_to_proto
from tandem.v1 import model_service_pb2, model_service_pb2_grpc

MODEL_SERVICE_NAME: str = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Describes the one model of the process, which does not change."""

    def __init__(self, model: ModelDescription) -> None:
        self._response = model_service_pb2.DescribeModelResponse(model=model_to_proto(model))

    async def DescribeModel(
        self,
        request: model_service_pb2.DescribeModelRequest,
        context: grpc.aio.ServicerContext,
    ) -> model_service_pb2.DescribeModelResponse:
        """Says what the model is, and what it takes."""
        return self._response
