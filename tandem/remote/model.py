"""Asks a service for the description of its model."""

from tandem.chassis.calls.channels import call
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.v1 import model_service_pb2 as pb
from tandem.v1.model_service_pb2_grpc import ModelServiceStub


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
    return model_from_proto(response.model)
