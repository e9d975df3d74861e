"""Makes LeaPRR's view of a corpus from its similarities alone."""

import numpy as np
from numpy.typing import ArrayLike

from tandem.lab.neighbours.lists.neighbour_lists import Scores, SimilarityLists, nearest_lists


def similarity_view(
    image_text_IT: Scores,
    images_II: Scores,
    texts_TT: Scores,
    image_of_text: ArrayLike,
    depth: int = 100,
) -> SimilarityLists:
    """Returns the view of images that find texts, with lists of `depth` entries or all."""
    return SimilarityLists(
        image_text_IT,
        images_II,
        texts_TT,
        np.arange(len(image_text_IT)),
        np.asarray(image_of_text, np.int64),
        nearest_lists(image_text_IT, depth),
        nearest_lists(images_II, depth),
        nearest_lists(texts_TT, depth),
        nearest_lists(image_text_IT.T, depth),
    )
