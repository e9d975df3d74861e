"""Implements EncoderService."""

import grpc

from tandem.contract.deadline import Deadline
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.local.encoding.local_encoder import LocalEncoder
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceServicer
from tandem.wire.encoding import ENCODED_WIRE, contents_from_proto, purpose_from_proto


class EncoderServicer(EncoderServiceServicer):
    """Encodes batches; a content that fails does not affect the others."""

    def __init__(self, encoder: LocalEncoder, default_timeout_seconds: float) -> None:
        self._encoder = encoder
        self._default_timeout_seconds = default_timeout_seconds

    async def EncodeContents(
        self, request: pb.EncodeContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EncodeContentsResponse:
        """Encodes one batch."""
        encoded = await self._encoder.encode(
            contents_from_proto(request.contents),
            Deadline.of_call(context, default_seconds=self._default_timeout_seconds),
            purpose=purpose_from_proto(request.purpose),
            truncation_policy=TRUNCATION_POLICY_WIRE.from_proto(request.truncation_policy),
        )
        return ENCODED_WIRE.to_proto(encoded)
