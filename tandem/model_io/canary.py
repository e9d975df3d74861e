"""Sends synthetic inferences, which show whether the expected model is served and answers.

Triton's readiness is not enough: it reports a model whose process is dead as ready. If users' calls
have just shown that a model works, no canary is sent: canaries are for idle times.
"""

import asyncio

import numpy as np

from tandem.model_io.config_pbtxt import INSTANCE_COUNT, image_rules_of
from tandem.model_io.manifest import Manifest
from tandem.model_io.priority import Priority
from tandem.model_io.served_functions import Role, TokenSource
from tandem.model_io.served_model import ImageTokenArray, ServedModel, TokenIds

_CANARY_SECONDS = 2.0
# One instance can be dead while the other answers. Triton alternates between them.
_TRY_COUNT = 3
# Spaced out: a call that waits for a dead instance occupies it for a second, so tries in quick
# succession can miss it repeatedly.
_TRY_GAP_SECONDS = 0.25


async def check_encoding(model: ServedModel) -> None:
    """Encodes a text and a black picture; raises a TandemError if a Triton model fails.

    Skips a model that calls of the last second have proven. Takes at least half a second.
    """
    functions = model.manifest.functions
    for turn in range(_TRY_COUNT):
        if turn:
            await asyncio.sleep(_TRY_GAP_SECONDS)
        for name in (*functions.embed_image, functions.image_tokens):
            await _check_image_side(model, name, turn)
        if not model.is_proven(functions.embed_text):
            await model.embed_texts([_made_up_text()], _CANARY_SECONDS, Priority.CANARY)
    model.check_processes()


async def check_matching(model: ServedModel) -> None:
    """Scores a synthetic pair; raises a TandemError if the model fails.

    Skips a model that calls of the last second have proven, and one without `score_pair`. Takes at
    least half a second.
    """
    functions = model.manifest.functions
    is_recomputed = model.manifest.tokens is TokenSource.RECOMPUTED
    for turn in range(_TRY_COUNT):
        if turn:
            await asyncio.sleep(_TRY_GAP_SECONDS)
        if functions.score_pair is not None and not model.is_proven(functions.score_pair):
            text, tokens = _made_up_text(), _made_up_tokens(model.manifest)
            await model.match_logits([text], [tokens], _CANARY_SECONDS, Priority.CANARY)
        if is_recomputed:
            await _check_image_side(model, functions.image_tokens, turn)
    model.check_processes()


async def _check_image_side(model: ServedModel, name: str | None, turn: int) -> None:
    if name is None or model.is_proven(name):
        return
    manifest = model.manifest
    roles = [each for each in manifest.models[name].outputs if each is not Role.MATCH_LOGIT]
    if not manifest.models[name].reads_pixels:
        given = {Role.IMAGE_TOKENS: _made_up_tokens(manifest)[None]}
    elif turn < INSTANCE_COUNT:
        # One for each instance, with no other calls in between: it is the most expensive canary.
        side = image_rules_of(manifest, name).size
        given = {Role.PIXELS: np.zeros((1, side, side, 3), dtype=np.uint8)}
    else:
        return
    await model.call(name, given, roles, _CANARY_SECONDS, Priority.CANARY)


def _made_up_text() -> TokenIds:
    """Returns two ids that every vocabulary has, int32 [2]."""
    return np.zeros(2, dtype=np.int32)


def _made_up_tokens(manifest: Manifest) -> ImageTokenArray:
    """Returns a picture's tokens [R, D], all zero."""
    return np.zeros((manifest.image_token_count, manifest.token_width), dtype=np.float16)
