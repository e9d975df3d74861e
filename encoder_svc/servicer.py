"""Implements EncoderService."""

from collections.abc import Sequence

import grpc

from tandem.chassis.calls.channels import deadline_seconds
from tandem.contract.content import Content, TruncationPolicy
from tandem.encoding.encoder import Encoder
from tandem.encoding.metrics import count_truncated_texts, observe_stage
from tandem.encoding.query_encodings import QueryEncodings
from tandem.errors import TandemError
from tandem.stages.encoding import EncodedBatch
from tandem.v1 import encoder_service_pb2, encoder_service_pb2_grpc
from tandem.wire import truncation_policy_from_proto
from tandem.wire.encoding import contents_from_proto, encoded_to_proto


class EncoderServicer(encoder_service_pb2_grpc.EncoderServiceServicer):
    """Encodes batches; a content that fails does not affect the others."""

    def __init__(
        self, encoder: Encoder, queries: QueryEncodings, default_timeout_seconds: float
    ) -> None:
        self._encoder = encoder
        self._queries = queries
        self._default_timeout_seconds = default_timeout_seconds

    async def EncodeContents(
        self,
        request: encoder_service_pb2.EncodeContentsRequest,
        context: grpc.aio.ServicerContext,
    ) -> encoder_service_pb2.EncodeContentsResponse:
        """Encodes one batch."""
        contents = contents_from_proto(request.contents)
        timeout_seconds = deadline_seconds(context, self._default_timeout_seconds)
        policy = truncation_policy_from_proto(request.truncation_policy)
        is_query = request.purpose == encoder_service_pb2.ENCODE_PURPOSE_QUERY
        encoded = await self.encode(contents, timeout_seconds, policy, is_query=is_query)
        return encoded_to_proto(encoded)

    async def encode(
        self,
        contents: Sequence[Content | TandemError],
        timeout_seconds: float,
        policy: TruncationPolicy,
        *,
        is_query: bool,
    ) -> EncodedBatch:
        """Encodes 1 to MAX_CONTENT_COUNT contents; callers of this process need no message."""
        encode = self._queries.encode if is_query else self._encoder.encode
        encoded = await encode(contents, timeout_seconds, policy)
        count_truncated_texts(encoded.outcomes, policy)
        observe_stage("preprocess", encoded.preprocess_seconds)
        observe_stage("inference", encoded.inference_seconds)
        return encoded
