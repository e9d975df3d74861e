"""Calls encoder_svc."""

from collections.abc import Sequence

import grpc

from tandem.chassis.calls.channels import call
from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.remote.model import described_model
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.v1.encoder_service_pb2 import EncodeContentsResponse
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.model_service_pb2_grpc import ModelServiceStub
from tandem.wire.encoding import contents_to_proto, encoded_from_proto


class RemoteEncoder(Encoder):
    """The encoder behind a channel."""

    def __init__(self, channel: grpc.aio.Channel, name: str = "encoder") -> None:
        """Takes the name that errors say."""
        self._name = name
        self._stub = EncoderServiceStub(channel)
        self._model = ModelServiceStub(channel)

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error, from one call."""
        response: EncodeContentsResponse = await call(
            self._stub.EncodeContents,
            contents_to_proto(contents, purpose, truncation_policy),
            service=self._name,
            timeout_seconds=deadline.left(),
        )
        return encoded_from_proto(response, len(contents))

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        return await described_model(self._model, self._name, deadline)
