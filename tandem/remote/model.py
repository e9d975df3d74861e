"""Describes a service's model over gRPC: ModelService, and the call of it."""

from collections.abc import Callable

import grpc

from tandem.chassis.calls.channels import call
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import MODEL_WIRE, ModelDescription
from tandem.v1 import model_service_pb2 as pb
from tandem.v1.model_service_pb2_grpc import ModelServiceServicer, ModelServiceStub

MODEL_SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["ModelService"].full_name


class ModelServicer(ModelServiceServicer):
    """Describes the serving version of the process's model."""

    def __init__(self, describe: Callable[[], ModelDescription]) -> None:
        self._describe = describe

    async def DescribeModel(
        self, request: pb.DescribeModelRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeModelResponse:
        """Returns what the model is, and its limits."""
        return pb.DescribeModelResponse(model=MODEL_WIRE.to_proto(self._describe()))


async def described_model(
    stub: ModelServiceStub, service: str, deadline: Deadline
) -> ModelDescription:
    """Returns the description of the model that the service serves."""
    response: pb.DescribeModelResponse = await call(
        stub.DescribeModel,
        pb.DescribeModelRequest(),
        service=service,
        timeout_seconds=deadline.left(),
    )
    return MODEL_WIRE.from_proto(response.model)
