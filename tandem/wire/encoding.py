"""Converts contents to encode, and their encodings, to messages and back."""

from collections.abc import Sequence

from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.field_wire import DURATION_WIRE
from tandem.contract.inference_cost import COST_WIRE
from tandem.contract.record_wire import Field, RecordWire, or_error, repeated
from tandem.contract.search.answer_wire import (
    content_from_proto,
    content_to_proto,
    item_error,
    item_error_to_proto,
)
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.errors import InternalFault, TandemError
from tandem.stages.encoding import EncodedBatch, EncodePurpose
from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.wire import ENCODING_WIRE


def contents_to_proto(
    contents: Sequence[Content], purpose: EncodePurpose, policy: TruncationPolicy
) -> pb.EncodeContentsRequest:
    """Returns the request for encodings."""
    return pb.EncodeContentsRequest(
        contents=map(content_to_proto, contents),
        truncation_policy=TRUNCATION_POLICY_WIRE.to_proto(policy),
        purpose=f"ENCODE_PURPOSE_{purpose.name}",
    )


def purpose_from_proto(value: pb.EncodePurpose) -> EncodePurpose:
    """Returns the purpose; INGEST if it is unspecified or unknown."""
    is_query = value == pb.ENCODE_PURPOSE_QUERY
    return EncodePurpose.QUERY if is_query else EncodePurpose.INGEST


def contents_from_proto(messages: Sequence[content_pb2.Content]) -> list[Content | TandemError]:
    """Returns each content or its error."""
    return [or_error(content_from_proto, message) for message in messages]


def encoded_from_proto(response: pb.EncodeContentsResponse, count: int) -> EncodedBatch:
    """Returns the encodings of that many contents; raises InternalFault for another number."""
    if len(response.results) != count:
        raise InternalFault(why=f"encoder answered {len(response.results)} of {count} contents")
    return ENCODED_WIRE.from_proto(response)


def _result(outcome: Encoding | TandemError) -> pb.EncodeResult:
    if isinstance(outcome, TandemError):
        return pb.EncodeResult(error=item_error_to_proto(outcome))
    return pb.EncodeResult(encoding=ENCODING_WIRE.to_proto(outcome))


def _outcome(result: pb.EncodeResult) -> Encoding | TandemError:
    if result.WhichOneof("outcome") == "encoding":
        return ENCODING_WIRE.from_proto(result.encoding)
    return item_error(result.error)


ENCODED_WIRE = RecordWire(
    EncodedBatch,
    pb.EncodeContentsResponse,
    outcomes=repeated(Field(_result, _outcome)).named("results"),
    fingerprint="model_fingerprint",
    cost=COST_WIRE,
    is_model_unavailable="model_unavailable",
    preprocess_seconds=DURATION_WIRE.named("preprocess_duration"),
    inference_seconds=DURATION_WIRE.named("inference_duration"),
)
