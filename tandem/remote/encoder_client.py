"""Calls encoder_svc with our own types; protobuf ends here."""

from collections.abc import Sequence

import grpc

from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import ModelUnavailable
from tandem.search.calls.breaker import BREAKER_RULE, BreakerRule
from tandem.search.calls.call_policy import FAILURES, Dependency
from tandem.search.calls.retry_budget import RetryBudget
from tandem.stages.encoding import EncodedBatch, EncodePurpose
from tandem.v1 import (
    encoder_service_pb2,
    encoder_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)
from tandem.wire.encoding import contents_to_proto, encoded_from_proto


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
            contents_to_proto(contents, purpose, truncation_policy),
            deadline,
        )
        return encoded_from_proto(response, len(contents))

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.call_once(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline
        )
        return model_from_proto(response.model)
