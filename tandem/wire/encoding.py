"""Converts contents to encode, and their encodings, to messages and back."""

from collections.abc import Sequence

from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.inference_cost import cost_from_proto, cost_to_proto
from tandem.errors import InternalFault, TandemError
from tandem.stages.encoding import EncodedBatch, EncodePurpose
from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    duration_to_proto,
    encoding_from_proto,
    encoding_to_proto,
    item_error_from_proto,
    item_error_to_proto,
    truncation_policy_to_proto,
)


def contents_to_proto(
    contents: Sequence[Content], purpose: EncodePurpose, policy: TruncationPolicy
) -> pb.EncodeContentsRequest:
    """Returns the request for encodings."""
    return pb.EncodeContentsRequest(
        contents=map(content_to_proto, contents),
        truncation_policy=truncation_policy_to_proto(policy),
        purpose=f"ENCODE_PURPOSE_{purpose.name}",
    )


def purpose_from_proto(value: pb.EncodePurpose) -> EncodePurpose:
    """Returns the purpose; INGEST if it is unspecified or unknown."""
    is_query = value == pb.ENCODE_PURPOSE_QUERY
    return EncodePurpose.QUERY if is_query else EncodePurpose.INGEST


def contents_from_proto(messages: Sequence[content_pb2.Content]) -> list[Content | TandemError]:
    """Returns each content or its error."""
    return [_content_or_error(message) for message in messages]


def encoded_to_proto(encoded: EncodedBatch) -> pb.EncodeContentsResponse:
    """Returns the response with the encodings."""
    return pb.EncodeContentsResponse(
        results=map(_result, encoded.outcomes),
        model_fingerprint=encoded.fingerprint,
        preprocess_duration=duration_to_proto(encoded.preprocess_seconds),
        inference_duration=duration_to_proto(encoded.inference_seconds),
        cost=cost_to_proto(encoded.cost),
        model_unavailable=encoded.is_model_unavailable,
        model_version=encoded.model_version,
    )


def encoded_from_proto(response: pb.EncodeContentsResponse, count: int) -> EncodedBatch:
    """Returns the encodings of that many contents; raises InternalFault for another number."""
    if len(response.results) != count:
        raise InternalFault(why=f"encoder answered {len(response.results)} of {count} contents")
    return EncodedBatch(
        [_outcome(result) for result in response.results],
        response.model_fingerprint,
        cost_from_proto(response.cost),
        response.model_unavailable,
        response.model_version,
    )


def _content_or_error(message: content_pb2.Content) -> Content | TandemError:
    try:
        return content_from_proto(message)
    except TandemError as error:
        return error.kept()


def _result(outcome: Encoding | TandemError) -> pb.EncodeResult:
    if isinstance(outcome, TandemError):
        return pb.EncodeResult(error=item_error_to_proto(outcome))
    return pb.EncodeResult(encoding=encoding_to_proto(outcome))


def _outcome(result: pb.EncodeResult) -> Encoding | TandemError:
    if result.WhichOneof("outcome") == "encoding":
        return encoding_from_proto(result.encoding)
    return item_error_from_proto(result.error)
