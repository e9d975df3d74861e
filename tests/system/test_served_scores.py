"""What Triton serves is what was trained: 200 pairs through the whole path against eager torch.

Probabilities are compared, by the shipped model's calibration, so that it is seen to arrive.
"""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from tandem.client import Client
from tandem.contract.model_description import ProbabilityCalibration
from tandem.corpus.records import Record
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.calibration import CALIBRATION_NAME, calibration_in
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.lowered import lowered

QUERY_COUNT = 10
CANDIDATE_COUNT = 20
TOLERANCES = {Precision.FP32: 1e-4, Precision.BF16: 1e-3}
TOLERANCE = TOLERANCES[native_precision()]

Decode = Callable[[bytes, ImageRules], np.ndarray]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """The shipped model in eager torch, in the precision that is served here."""
    loaded = load_checkpoint(default_checkpoint())
    return replace(loaded, model=lowered(loaded.model, native_precision()))


@pytest.fixture(scope="module")
def served(stack: object, scenes_index: str, records: list[Record]) -> dict[tuple[str, str], float]:
    """Match probabilities by (query, item id), for random queries and their candidates."""
    chosen = np.random.default_rng(11).choice(len(records), QUERY_COUNT, replace=False)
    scores = {}
    with Client(stack.address, timeout_seconds=30.0) as client:  # type: ignore[attr-defined]
        for number in chosen:
            text = records[number].captions[number % 3].text
            result = client.search(
                text, index_id=scenes_index, retrieve_k=CANDIDATE_COUNT, return_n=CANDIDATE_COUNT
            )
            for item in result.items:
                assert item.match_probability is not None
                scores[text, item.item_id] = item.match_probability
    return scores


def test_served_scores_equal_eager_ones(
    served: dict[tuple[str, str], float], checkpoint: Checkpoint, records: list[Record]
) -> None:
    """Tokenizer, decoding, export, padding, batching and float16 storage change nothing."""
    assert len(served) == QUERY_COUNT * CANDIDATE_COUNT
    eager = eager_scores(served, checkpoint, records, decode_image)
    assert worst_difference(served, eager) <= TOLERANCE


def test_the_comparison_sees_a_slight_blur(
    served: dict[tuple[str, str], float], checkpoint: Checkpoint, records: list[Record]
) -> None:
    """Positive control: even one resize too many is seen."""

    def decode_twice(image_bytes: bytes, rules: ImageRules) -> np.ndarray:
        size = rules.size
        small = Image.open(io.BytesIO(image_bytes)).convert("RGB").resize((size - 8, size - 8))
        return np.asarray(small.resize((size, size)))

    eager = eager_scores(served, checkpoint, records, decode_twice)
    assert worst_difference(served, eager) > 10 * TOLERANCE


@torch.inference_mode()
def eager_scores(
    served: dict[tuple[str, str], float],
    checkpoint: Checkpoint,
    records: list[Record],
    decode: Decode,
) -> dict[tuple[str, str], float]:
    """Returns the same pairs' probabilities, one pair at a time, unpadded."""
    rules = ImageRules(size=checkpoint.model.config.image_size)
    probability = shipped_calibration(checkpoint)
    tokens = {}
    for record in records:
        pixels = torch.from_numpy(decode(record.image.read(), rules).copy())[None]
        tokens[record.record_id] = checkpoint.model.image_backbone(pixels)
    scores = {}
    for text, item_id in served:
        ids = torch.tensor([checkpoint.tokenizer.encode(text).ids])
        logit = checkpoint.model.match_logits(ids, torch.ones_like(ids), tokens[item_id])
        scores[text, item_id] = probability.probability(logit.item())
    return scores


def shipped_calibration(checkpoint: Checkpoint) -> ProbabilityCalibration:
    """Returns what makes probabilities of the shipped model's logits."""
    fingerprint = export_manifest(checkpoint.files, native_precision(), {}).fingerprint
    calibration = calibration_in(default_checkpoint() / CALIBRATION_NAME, fingerprint)
    assert calibration is not None
    assert calibration.probability is not None
    return calibration.probability


def worst_difference(
    served: dict[tuple[str, str], float], eager: dict[tuple[str, str], float]
) -> float:
    """Returns the largest absolute difference."""
    return max(abs(served[pair] - eager[pair]) for pair in served)
