"""Made-up inferences, which tell whether what is served is the model that it should be.

Triton's own word is not enough: it says ready of a model whose process is dead. What users' own
calls have just shown of a model is not asked again: canaries are for when nobody else calls.
"""

import asyncio

import numpy as np

from tandem.model_io.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER
from tandem.model_io.priority import Priority
from tandem.model_io.served_joint_model import ImageTokenArray, ServedJointModel, TokenIds

_CANARY_SECONDS = 2.0
# An instance can be dead while the other answers. Triton gives them work in turn, others' between.
_TRY_COUNT = 3
# Apart: a call that waits for a dead instance keeps it from all others for a second, and so tries
# close together can miss it time after time.
_TRY_GAP_SECONDS = 0.25


async def check_encoding(model: ServedJointModel) -> None:
    """Encodes a text and a black picture; raises a TandemError where a model cannot.

    A model that calls of the last second have proven is spared. Takes half a second at least.
    """
    size = model.manifest.image_size
    pixels = np.zeros((1, size, size, 3), dtype=np.uint8)
    ids, tokens = _made_up(model)
    for turn in range(_TRY_COUNT):
        if turn:
            await asyncio.sleep(_TRY_GAP_SECONDS)
        # With nobody else's between, one for each instance: it is the dearest of them.
        if turn < INSTANCE_COUNT and not model.is_proven(IMAGE_BACKBONE):
            await model.image_tokens(pixels, _CANARY_SECONDS, Priority.CANARY)
        if not model.is_proven(JOINT_ENCODER):
            await model.embed_images(tokens[None], _CANARY_SECONDS, Priority.CANARY)
            await model.embed_texts([ids], _CANARY_SECONDS, Priority.CANARY)
    model.check_processes()


async def check_matching(model: ServedJointModel) -> None:
    """Scores a made-up pair; raises a TandemError where the model cannot.

    A model that calls of the last second have proven is spared. Takes half a second at least.
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
