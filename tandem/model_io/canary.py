"""Sends synthetic inferences, which show whether the expected model is served and answers.

Triton's readiness is not enough: it reports a model whose process is dead as ready. If users' calls
have just shown that a model works, no canary is sent: canaries are for idle times.
"""

import asyncio

import numpy as np

from tandem.model_io.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER
from tandem.model_io.priority import Priority
from tandem.model_io.served_joint_model import ImageTokenArray, ServedJointModel, TokenIds

_CANARY_SECONDS = 2.0
# One instance can be dead while the other answers. Triton alternates between them.
_TRY_COUNT = 3
# Spaced out: a call that waits for a dead instance occupies it for a second, so tries in quick
# succession can miss it repeatedly.
_TRY_GAP_SECONDS = 0.25


async def check_encoding(model: ServedJointModel) -> None:
    """Encodes a text and a black picture; raises a TandemError if a model fails.

    Skips a model that calls of the last second have proven. Takes at least half a second.
    """
    size = model.manifest.image_size
    pixels = np.zeros((1, size, size, 3), dtype=np.uint8)
    ids, tokens = _made_up(model)
    for turn in range(_TRY_COUNT):
        if turn:
            await asyncio.sleep(_TRY_GAP_SECONDS)
        # One for each instance, with no other calls in between: it is the most expensive canary.
        if turn < INSTANCE_COUNT and not model.is_proven(IMAGE_BACKBONE):
            await model.image_tokens(pixels, _CANARY_SECONDS, Priority.CANARY)
        if not model.is_proven(JOINT_ENCODER):
            await model.embed_images(tokens[None], _CANARY_SECONDS, Priority.CANARY)
            await model.embed_texts([ids], _CANARY_SECONDS, Priority.CANARY)
    model.check_processes()


async def check_matching(model: ServedJointModel) -> None:
    """Scores a synthetic pair; raises a TandemError if the model fails.

    Skips a model that calls of the last second have proven. Takes at least half a second.
    """
    ids, tokens = _made_up(model)
    for turn in range(_TRY_COUNT):
        if turn:
            await asyncio.sleep(_TRY_GAP_SECONDS)
        if not model.is_proven(JOINT_ENCODER):
            await model.match_logits([ids], [tokens], _CANARY_SECONDS, Priority.CANARY)
    model.check_processes()


def _made_up(model: ServedJointModel) -> tuple[TokenIds, ImageTokenArray]:
    """Returns an empty text's ids [2] and a picture's tokens [R, D], all zero."""
    manifest = model.manifest
    ids = np.array([manifest.cls_id, manifest.sep_id], dtype=np.int32)
    return ids, np.zeros((manifest.image_token_count, manifest.token_width), dtype=np.float16)
