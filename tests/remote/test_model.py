"""ModelService over a real server."""

from dataclasses import replace
from functools import partial

import pytest

from tandem.contract.model_description import (
    MODEL_WIRE,
    AdaptiveDepthRule,
    ModelDescription,
    ProbabilityCalibration,
)
from tandem.remote.model import MODEL_SERVICE_NAME, ModelServicer
from tandem.v1 import model_service_pb2
from tandem.v1.model_service_pb2_grpc import ModelServiceStub, add_ModelServiceServicer_to_server
from tests.support.chassis.served import served

PLAIN = ModelDescription(
    fingerprint="m",
    family="joint",
    precision="bf16",
    embedding_dimension=192,
    max_text_token_count=64,
    max_text_bytes=8_192,
    max_image_bytes=32 << 20,
    max_image_pixel_count=25_000_000,
)
MEASURED = replace(
    PLAIN,
    probability_calibration=ProbabilityCalibration(0.5, -1.0),
    adaptive_depth_rule=AdaptiveDepthRule(
        first_count=5,
        further_count=4,
        intercept=1.0,
        best_logit_weight=2.0,
        margin_weight=3.0,
        similarity_gap_weight=4.0,
        log_rank_weight=5.0,
        stop_chance=0.02,
    ),
)


@pytest.mark.parametrize("model", [PLAIN, MEASURED], ids=["plain", "measured"])
async def test_a_caller_gets_the_whole_description(model: ModelDescription) -> None:
    """What was not measured is unset, not 0."""
    register = partial(add_ModelServiceServicer_to_server, ModelServicer(lambda: model))
    async with served(register, service_names=[MODEL_SERVICE_NAME]) as channel:
        response = await ModelServiceStub(channel).DescribeModel(
            model_service_pb2.DescribeModelRequest(), timeout=10
        )

    assert MODEL_WIRE.from_proto(response.model) == model
    assert response.model.HasField("probability_calibration") == (model is MEASURED)
