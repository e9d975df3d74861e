"""Tests through Triton whether a version may replace another, before it serves users.

Shapes: n texts or pictures, R image tokens, D token width, d dimensions.
"""

import numpy as np
from numpy.typing import NDArray

from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.priority import Priority

# The largest difference per value between two precisions of one model; models of different seeds
# differ by a hundred times as much.
EMBEDDING_TOLERANCE = 1e-3
_PROBE_COUNT = 4
_PROBE_SECONDS = 10.0


class VersionRefused(ValueError):
    """The version does not fit the serving one; the message says why."""


async def check_version(candidate: ServedModel, serving: ServedModel) -> None:
    """Returns if the candidate may serve the same indexes as `serving`.

    Raises the errors of its inferences, mainly ModelOutputInvalid for a wrong shape, and
    VersionRefused if its embeddings differ from those in the indexes. Match logits may differ,
    because a version may have another cross-encoder.
    """
    # Without canaries, which skip a model that has just answered a call in any version.
    await _check_logits(candidate)
    off = max(
        float(np.abs(theirs - ours).max())
        for theirs, ours in zip(
            await _embeddings(candidate), await _embeddings(serving), strict=True
        )
    )
    if not off <= EMBEDDING_TOLERANCE:
        raise VersionRefused(
            f"its embeddings differ from those of version {serving.version} by up to {off:.2g}, "
            f"and no index holds both over {EMBEDDING_TOLERANCE:g}; to serve it, export it with "
            "tandem models add and ingest again"
        )


async def _check_logits(model: ServedModel) -> None:
    manifest = model.manifest
    text = np.zeros(2, dtype=np.int32)
    image = np.zeros((manifest.image_token_count, manifest.token_width), dtype=np.float16)
    await model.match_logits([text] * _PROBE_COUNT, [image] * _PROBE_COUNT, _PROBE_SECONDS)


async def _embeddings(model: ServedModel) -> list[NDArray[np.float32]]:
    """Returns float32 [1, d] of a synthetic text of each length, and [n, d] of pictures."""
    manifest = model.manifest
    random = np.random.default_rng(0)
    texts = [
        random.integers(0, manifest.text.vocabulary_size, length, dtype=np.int32)
        for length in manifest.text.lengths
    ]
    return [
        # One per call, because the texts of a call may be padded to one length.
        *[
            (await model.embed_texts([text], _PROBE_SECONDS, Priority.QUERY)).values
            for text in texts
        ],
        await _image_embeddings(model, random),
    ]


async def _image_embeddings(model: ServedModel, random: np.random.Generator) -> NDArray[np.float32]:
    manifest = model.manifest
    if manifest.regions is not None:
        shape = (_PROBE_COUNT, manifest.image_token_count, manifest.token_width)
        regions = list(random.random(shape).astype(np.float16))
        return (await model.embed_regions(regions, _PROBE_SECONDS, Priority.QUERY)).values
    size = manifest.picture.size
    pictures = random.integers(0, 256, (_PROBE_COUNT, size, size, 3), dtype=np.uint8)
    return (await model.encode_images(pictures, _PROBE_SECONDS, Priority.QUERY)).values.embeddings
