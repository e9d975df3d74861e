"""The benchmark of neighbours: its corpus is shuffled without losing who belongs to whom."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.bench.neighbours import (
    Encoded,
    encoded,
    expansions,
    graph_methods,
    learned,
    recalls,
    tuned,
)
from tandem.corpus.scenes.records import scene_records
from tandem.evaluation.ranking import retrieve_order
from tandem.modeling.checkpoint import load_checkpoint
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint


def _corpus(seed: int, image_count: int = 70) -> Encoded:
    rng = np.random.default_rng(seed)
    image_of_text = rng.permutation(np.repeat(np.arange(image_count), 2))
    concepts = rng.normal(size=(image_count, 32))
    images, texts = (
        near / np.linalg.norm(near, axis=1, keepdims=True)
        for near in (
            each + 0.8 * rng.normal(size=each.shape) for each in (concepts, concepts[image_of_text])
        )
    )
    return Encoded(images, texts, image_of_text)


def test_a_shuffled_corpus_keeps_its_pairs(tmp_path: Path) -> None:
    """Both captions of a scene belong to the place at which its picture is."""
    texts = tuple(each.text for record in scene_records("test", 1, 4) for each in record.captions)
    save_tiny_checkpoint(tmp_path, texts=texts)

    corpus = encoded(load_checkpoint(tmp_path), "test", 4)

    assert corpus.images.shape[0] == 4
    assert corpus.texts.shape[0] == 8
    assert_array_equal(np.bincount(corpus.image_of_text), [2] * 4)
    by_image, by_text = corpus.directions()
    for text, images in enumerate(by_text.answers):
        assert all(text in by_image.answers[image] for image in images)


def test_every_method_is_tuned_and_measured() -> None:
    """Each once, with a setting of its own; recalls are those of a right order."""
    names = {method for method, _, _ in [*expansions(), *graph_methods()]}

    rows = list(tuned(_corpus(seed=1), _corpus(seed=2)))

    assert [method for method, _, _ in rows] == list(dict.fromkeys(m for m, _, _ in rows))
    assert {method for method, _, _ in rows} == names
    assert all(len(percents) == 6 and 0 < min(percents) <= 100 for _, _, percents in rows)


@pytest.mark.slow
def test_leaprr_is_measured_in_both_profiles() -> None:
    rows = list(learned(_corpus(seed=1), _corpus(seed=2), _corpus(seed=3), epochs=1, width=16))

    assert [setting.split(",")[0] for _, setting, _ in rows] == ["paper", "code"]


def test_recalls_are_of_both_directions() -> None:
    """The control: the right order has 100 in all six, its reverse does not."""
    corpus = _corpus(seed=1)
    right = corpus.image_of_text == np.arange(70)[:, None]
    orders = retrieve_order(right.astype(float)), retrieve_order(right.T.astype(float))
    backwards = orders[0][:, ::-1], orders[1][:, ::-1]

    assert recalls(orders, corpus) == [100.0] * 6
    assert recalls(backwards, corpus) == [0.0] * 6
