"""Made-up inferences, which tell whether what is served is the model that it should be.

Triton's own word is not enough: it says ready of a model whose process is dead.
"""

import numpy as np

from tandem.model_io.priority import Priority
from tandem.model_io.served_joint_model import ServedJointModel

_CANARY_SECONDS = 2.0
# An instance can be dead while the other answers. Triton gives them work in turn, others' between.
_TRY_COUNT = 3


async def check_encoding(model: ServedJointModel) -> None:
    """Encodes one text and one black picture; raises a TandemError where the model cannot."""
    size = model.manifest.image_size
    pixels = np.zeros((1, size, size, 3), dtype=np.uint8)
    ids = np.array([model.manifest.cls_id, model.manifest.sep_id], dtype=np.int32)
    for _ in range(_TRY_COUNT):
        tokens = await model.image_tokens(pixels, _CANARY_SECONDS, Priority.QUERY)
        await model.embed_images(tokens.values, _CANARY_SECONDS, Priority.QUERY)
        await model.embed_texts([ids], _CANARY_SECONDS, Priority.QUERY)
    model.check_processes()


async def check_matching(model: ServedJointModel) -> None:
    """Scores one made-up pair; raises a TandemError where the model cannot."""
    manifest = model.manifest
    ids = np.array([manifest.cls_id, manifest.sep_id], dtype=np.int32)
    tokens = np.zeros((manifest.image_token_count, manifest.token_width), dtype=np.float16)
    for _ in range(_TRY_COUNT):
        await model.match_logits([ids], [tokens], _CANARY_SECONDS, Priority.QUERY)
    model.check_processes()
