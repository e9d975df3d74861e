"""ModelService, for every service with a model behind it."""

from collections.abc import Callable

import grpc

from tandem.contract.model_description import ModelDescription, model_to_proto
from tandem.v1 import model_service_pb2, model_service_pb2_grpc

MODEL_SERVICE_NAME: str = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Describes the model of the process, at the version that serves."""

    def __init__(self, describe: Callable[[], ModelDescription]) -> None:
        self._describe = describe

    async def DescribeModel(
        self,
        request: model_service_pb2.DescribeModelRequest,
        context: grpc.aio.ServicerContext,
    ) -> model_service_pb2.DescribeModelResponse:
        """Says what the model is, and what it takes."""
        return model_service_pb2.DescribeModelResponse(model=model_to_proto(self._describe()))
