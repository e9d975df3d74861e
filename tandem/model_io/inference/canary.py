"""Sends synthetic inferences, which show whether the expected model is served and answers.

Triton's readiness is not enough: it reports a model whose process is dead as ready. If users' calls
have just shown that a model works, no canary is sent: canaries are for idle times. A late canary is
no fault of a model that works, only behind others' batches (`TritonClient.check_working`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np

from tandem.errors import DeadlineExceeded, Overloaded
from tandem.model_io.inference.model_runner import ImageTokenArray, TokenIds
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT, image_rules_of
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.priority import Priority
from tandem.model_io.repository.served_functions import Role, TokenSource

_CANARY_SECONDS = 2.0
# All canaries of a model together: within the health check's 5 s, which also ask for its counters.
_MODEL_SECONDS = 3.5
# One instance can be dead while the other answers. Triton alternates between them.
_TRY_COUNT = 3
# Spaced out: a call that waits for a dead instance occupies it for a second, so tries in quick
# succession can miss it repeatedly.
_TRY_GAP_SECONDS = 0.25

_Send = Callable[[int, float], Awaitable[object]]
"""Sends the canary of a turn, with a deadline in seconds."""


async def check_encoding(model: ServedModel) -> None:
    """Encodes a text and a black picture; raises a TandemError if a Triton model fails.

    Skips a model that calls of the last second have proven. Takes at least half a second.
    """
    functions = model.manifest.functions
    sends: dict[str, list[_Send]] = {}
    for name in dict.fromkeys((*functions.embed_image, functions.image_tokens)):
        if name is not None:
            sends.setdefault(name, []).append(partial(_send_picture, model, name))
    sends.setdefault(functions.embed_text, []).append(partial(_send_text, model))
    await _check(model, sends)


async def check_matching(model: ServedModel) -> None:
    """Scores a synthetic pair; raises a TandemError if the model fails.

    Skips a model that calls of the last second have proven, and one without `score_pair`. Takes at
    least half a second.
    """
    functions = model.manifest.functions
    sends: dict[str, list[_Send]] = {}
    if functions.score_pair is not None:
        sends[functions.score_pair] = [partial(_send_pair, model)]
    if model.manifest.tokens is TokenSource.RECOMPUTED and functions.image_tokens is not None:
        sends.setdefault(functions.image_tokens, []).append(
            partial(_send_picture, model, functions.image_tokens)
        )
    await _check(model, sends)


async def _check(model: ServedModel, sends: dict[str, list[_Send]]) -> None:
    # Side by side: a busy model's canary must not use up the time of the next model's.
    outcomes = await asyncio.gather(
        *(_check_model(model, name, each) for name, each in sends.items()), return_exceptions=True
    )
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
    model.check_processes()


async def _check_model(model: ServedModel, name: str, sends: Sequence[_Send]) -> None:
    deadline_time = time.monotonic() + _MODEL_SECONDS
    try:
        for turn in range(_TRY_COUNT):
            if turn:
                await asyncio.sleep(_TRY_GAP_SECONDS)
            for send in sends:
                seconds = min(_CANARY_SECONDS, deadline_time - time.monotonic())
                if seconds > 0 and not model.is_proven(name):
                    await send(turn, seconds)
    except (DeadlineExceeded, Overloaded):
        await model.check_working(name)


async def _send_picture(model: ServedModel, name: str, turn: int, seconds: float) -> None:
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
    await model.call(name, given, roles, seconds, Priority.CANARY)


async def _send_text(model: ServedModel, _: int, seconds: float) -> None:
    await model.embed_texts([_made_up_text()], seconds, Priority.CANARY)


async def _send_pair(model: ServedModel, _: int, seconds: float) -> None:
    text, tokens = _made_up_text(), _made_up_tokens(model.manifest)
    await model.match_logits([text], [tokens], seconds, Priority.CANARY)


def _made_up_text() -> TokenIds:
    """Returns two ids that every vocabulary has, int32 [2]."""
    return np.zeros(2, dtype=np.int32)


def _made_up_tokens(manifest: Manifest) -> ImageTokenArray:
    """Returns a picture's tokens [R, D], all zero."""
    return np.zeros((manifest.image_token_count, manifest.token_width), dtype=np.float16)
