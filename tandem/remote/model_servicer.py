"""Implements ModelService, for every service that uses a model."""

from collections.abc import Callable

import grpc

from tandem.contract.model_description import ModelDescription, model_to_proto
from tandem.v1 import model_service_pb2, model_service_pb2_grpc

MODEL_SERVICE_NAME: str = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Describes the serving version of the process's model."""

    def __init__(self, describe: Callable[[], ModelDescription]) -> None:
        self._describe = describe

    async def DescribeModel(
        self,
        request: model_service_pb2.DescribeModelRequest,
        context: grpc.aio.ServicerContext,
    ) -> model_service_pb2.DescribeModelResponse:
        """Returns what the model is, and its limits."""
        return model_service_pb2.DescribeModelResponse(model=model_to_proto(self._describe()))
