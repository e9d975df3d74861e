"""Makes corpora whose similarities within a modality say what those across say with noise."""

import numpy as np

from tandem.lab.neighbours.lists.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    corpus_neighbours,
)

FINGERPRINT = "5" * 64


def planted_neighbours(
    seed: int,
    image_count: int = 40,
    depth: int = 20,
    fingerprint: str = FINGERPRINT,
    split: str = "train",
) -> CorpusNeighbours:
    """Returns images with two texts each; ids begin with a digest, as those of galleries."""
    rng = np.random.default_rng(seed)
    concepts = rng.normal(size=(image_count, 16))
    image_of_text = np.repeat(np.arange(image_count), 2)
    images, texts = (
        near / np.linalg.norm(near, axis=1, keepdims=True)
        for near in (
            each + 0.6 * rng.normal(size=each.shape) for each in (concepts, concepts[image_of_text])
        )
    )
    ids = rng.permutation(3 * image_count)
    return corpus_neighbours(
        NeighbourSource(fingerprint, "planted", split, seed, f"{seed:064x}"),
        [f"{number:04}-image" for number in ids[:image_count]],
        [f"{number:04}-text" for number in ids[image_count:]],
        images,
        texts,
        image_of_text.tolist(),
        depth,
    )
