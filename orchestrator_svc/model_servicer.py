"""ModelService: describes the models of the downstream services."""

from dataclasses import replace

import grpc

from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription, model_to_proto
from tandem.errors import TandemError
from tandem.remote.encoder_client import EncoderClient
from tandem.search.rerank.adaptive_depth import DepthRules
from tandem.v1 import model_service_pb2, model_service_pb2_grpc


class SearchModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Describes the encoder's model, with the cross-encoder's rules if that is available."""

    def __init__(
        self, encoder: EncoderClient, depth_rules: DepthRules, default_timeout_seconds: float
    ) -> None:
        self._encoder = encoder
        self._depth_rules = depth_rules
        self._default_timeout_seconds = default_timeout_seconds

    async def DescribeModel(
        self,
        request: model_service_pb2.DescribeModelRequest,
        context: grpc.aio.ServicerContext,
    ) -> model_service_pb2.DescribeModelResponse:
        """Describes the encoder's model, with the rules of the first rerank_svc that answers."""
        deadline = Deadline.of_call(context, default_seconds=self._default_timeout_seconds)
        model = await self._encoder.describe_model(deadline)
        try:
            cross_encoder = await self._depth_rules.describe(deadline)
        except TandemError:
            # Searches work without a cross-encoder, and so does this.
            return model_service_pb2.DescribeModelResponse(model=model_to_proto(model))
        return model_service_pb2.DescribeModelResponse(
            model=model_to_proto(_with_rules(model, cross_encoder))
        )


def _with_rules(model: ModelDescription, cross_encoder: ModelDescription) -> ModelDescription:
    if model.fingerprint != cross_encoder.fingerprint:
        return model
    return replace(
        model,
        probability_calibration=cross_encoder.probability_calibration,
        adaptive_depth_rule=cross_encoder.adaptive_depth_rule,
        neighbour_model=cross_encoder.neighbour_model,
    )
