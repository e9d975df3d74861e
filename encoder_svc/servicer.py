"""Implements EncoderService."""

from collections.abc import Sequence

import grpc

from encoder_svc.encoder import Encoder
from encoder_svc.metrics import count_truncated_texts, observe_stage
from encoder_svc.query_encodings import QueryEncodings
from tandem.chassis.channels import deadline_seconds
from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.inference_cost import cost_to_proto
from tandem.contract.limits import MAX_CONTENT_COUNT
from tandem.errors import BatchSizeOutOfRange, TandemError
from tandem.stages.encoding import EncodedBatch
from tandem.v1 import content_pb2, encoder_service_pb2, encoder_service_pb2_grpc
from tandem.wire import (
    content_from_proto,
    duration_to_proto,
    encoding_to_proto,
    item_error_to_proto,
    truncation_policy_from_proto,
)


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
        contents = _contents(request.contents)
        timeout_seconds = deadline_seconds(context, self._default_timeout_seconds)
        policy = truncation_policy_from_proto(request.truncation_policy)
        is_query = request.purpose == encoder_service_pb2.ENCODE_PURPOSE_QUERY
        encoded = await self.encode(contents, timeout_seconds, policy, is_query=is_query)
        return encoder_service_pb2.EncodeContentsResponse(
            results=[_result(outcome) for outcome in encoded.outcomes],
            model_fingerprint=encoded.fingerprint,
            preprocess_duration=duration_to_proto(encoded.preprocess_seconds),
            inference_duration=duration_to_proto(encoded.inference_seconds),
            cost=cost_to_proto(encoded.cost),
            model_unavailable=encoded.is_model_unavailable,
            model_version=encoded.model_version,
        )

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


def _contents(messages: Sequence[content_pb2.Content]) -> list[Content | TandemError]:
    if not 1 <= len(messages) <= MAX_CONTENT_COUNT:
        raise BatchSizeOutOfRange(name="contents", got=len(messages), low=1, high=MAX_CONTENT_COUNT)
    return [_content(message) for message in messages]


def _content(message: content_pb2.Content) -> Content | TandemError:
    try:
        return content_from_proto(message)
    except TandemError as error:
        return error.kept()


def _result(outcome: Encoding | TandemError) -> encoder_service_pb2.EncodeResult:
    if isinstance(outcome, TandemError):
        return encoder_service_pb2.EncodeResult(error=item_error_to_proto(outcome))
    return encoder_service_pb2.EncodeResult(encoding=encoding_to_proto(outcome))
