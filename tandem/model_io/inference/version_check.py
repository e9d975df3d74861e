"""Tests through Triton whether a version may replace another, before it serves users.

Shapes: n texts or pictures, R image tokens, D token width, d dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.model_io.inference.model_runner import ImageTokenArray
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.priority import Priority

# The largest difference per value between two precisions of one model; models of different seeds
# differ by a hundred times as much.
EMBEDDING_TOLERANCE = 1e-3
# Of the ranks of match logits. Of unrelated cross-encoders one in 100,000 is below it by chance; a
# reversed one is near -1.
REVERSED_CORRELATION = -0.5
_PROBE_COUNT = 4
_PAIR_COUNT = 64
_PROBE_SECONDS = 10.0


class VersionRefused(ValueError):
    """The version does not fit the serving one; the message says why."""


async def check_version(candidate: ServedModel, serving: ServedModel) -> None:
    """Returns if the candidate may serve the same indexes as `serving`.

    Raises the errors of its inferences, mainly ModelOutputInvalid for a wrong shape, and
    VersionRefused if its embeddings differ from those in the indexes, or its cross-encoder orders
    pairs the other way round. Otherwise match logits may differ, because a version may have another
    cross-encoder.
    """
    # Without canaries, which skip a model that has just answered a call in any version.
    theirs, ours = [await _probe(model) for model in (candidate, serving)]
    off = max(
        float(np.abs(a - b).max()) for a, b in zip(theirs.embeddings, ours.embeddings, strict=True)
    )
    if not off <= EMBEDDING_TOLERANCE:
        raise VersionRefused(
            f"its embeddings differ from those of version {serving.version} by up to {off:.2g}, "
            f"and no index holds both over {EMBEDDING_TOLERANCE:g}; to serve it, export it with "
            "tandem models add and ingest again"
        )
    agreement = _rank_correlation(theirs.logits, ours.logits)
    if agreement < REVERSED_CORRELATION:
        raise VersionRefused(
            f"its match logits order {_PAIR_COUNT} made-up pairs the other way round than version "
            f"{serving.version} (rank correlation {agreement:.2f}): the sign of one is reversed; "
            "if it is that of the serving one, stop Tandem and use tandem models add"
        )


@dataclass(frozen=True, slots=True)
class _Probe:
    """Holds what a version says of made-up contents, which are the same for each version."""

    embeddings: list[NDArray[np.float32]]
    """Float32 [1, d] of a text of each length, and [n, d] of pictures."""
    logits: NDArray[np.float32]


async def _probe(model: ServedModel) -> _Probe:
    manifest, random = model.manifest, np.random.default_rng(0)
    lengths, vocabulary_size = manifest.text.lengths, manifest.text.vocabulary_size
    embeddings = [
        # One per call, because the texts of a call may be padded to one length.
        (await model.embed_texts([text], _PROBE_SECONDS, Priority.QUERY)).values
        for text in (random.integers(0, vocabulary_size, each, dtype=np.int32) for each in lengths)
    ]
    shape = (_PROBE_COUNT, manifest.image_token_count, manifest.token_width)
    tokens: Sequence[ImageTokenArray] = list(random.random(shape).astype(np.float16))
    if manifest.regions is not None:
        of_regions = await model.embed_regions(tokens, _PROBE_SECONDS, Priority.QUERY)
        embeddings.append(of_regions.values)
    else:
        size = manifest.picture.size
        pictures = random.integers(0, 256, (_PROBE_COUNT, size, size, 3), dtype=np.uint8)
        encoded = (await model.encode_images(pictures, _PROBE_SECONDS, Priority.QUERY)).values
        embeddings.append(encoded.embeddings)
        tokens = tokens if encoded.tokens is None else list(encoded.tokens)
    # Of many texts, whose logits are as good as independent.
    texts = list(random.integers(0, vocabulary_size, (_PAIR_COUNT, min(lengths)), dtype=np.int32))
    images = [tokens[number % _PROBE_COUNT] for number in range(_PAIR_COUNT)]
    return _Probe(embeddings, (await model.match_logits(texts, images, _PROBE_SECONDS)).values)


def _rank_correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Returns Spearman's correlation, without shared ranks for ties."""
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])
