"""Calls encoder_svc with our own types; protobuf ends here."""

from collections.abc import Sequence

import grpc

from orchestrator_svc.services.breaker import BREAKER_RULE, BreakerRule
from orchestrator_svc.services.call_policy import FAILURES, Dependency
from orchestrator_svc.services.retry_budget import RetryBudget
from tandem.chassis.deadline import Deadline
from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.inference_cost import cost_from_proto
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import InternalFault, ModelUnavailable, TandemError
from tandem.stages.encoding import EncodedBatch, EncodePurpose
from tandem.v1 import (
    encoder_service_pb2,
    encoder_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)
from tandem.wire import (
    content_to_proto,
    encoding_from_proto,
    item_error_from_proto,
    truncation_policy_to_proto,
)


class EncoderClient:
    """Calls encoder_svc."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        retry_budget: RetryBudget | None = None,
        breaker_rule: BreakerRule = BREAKER_RULE,
    ) -> None:
        self._stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(channel)
        # Without its model, the encoder still answers from its cache.
        failures = tuple(each for each in FAILURES if each is not ModelUnavailable)
        self._dependency = Dependency("encoder", retry_budget, breaker_rule, failures=failures)

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error, from one call."""
        send = (
            self._dependency.call if purpose is EncodePurpose.QUERY else self._dependency.call_once
        )
        response: encoder_service_pb2.EncodeContentsResponse = await send(
            self._stub.EncodeContents,
            encoder_service_pb2.EncodeContentsRequest(
                contents=[content_to_proto(content) for content in contents],
                truncation_policy=truncation_policy_to_proto(truncation_policy),
                purpose=f"ENCODE_PURPOSE_{purpose.name}",
            ),
            deadline,
        )
        if len(response.results) != len(contents):
            raise InternalFault(
                why=f"encoder answered {len(response.results)} of {len(contents)} contents"
            )
        return EncodedBatch(
            [_outcome(result) for result in response.results],
            response.model_fingerprint,
            cost_from_proto(response.cost),
            response.model_unavailable,
            response.model_version,
        )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.call_once(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline
        )
        return model_from_proto(response.model)


def _outcome(result: encoder_service_pb2.EncodeResult) -> Encoding | TandemError:
    if result.WhichOneof("outcome") == "encoding":
        return encoding_from_proto(result.encoding)
    return item_error_from_proto(result.error)
