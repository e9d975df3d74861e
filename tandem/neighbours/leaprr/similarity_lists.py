"""Holds a corpus's similarities and the nearest of each, from one direction's view.

The matrices may be float16, and mapped from a file. Everything else that LeaPRR reads is made from
them for one batch. Shapes: Q queries, N items, I images, T texts, H list.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem.neighbours.neighbour_lists import Indices, Scores, nearest_lists

LIST_DEPTH = 100


@dataclass(frozen=True, slots=True)
class SimilarityLists:
    """Holds one direction of a corpus: queries of one modality, items of the other."""

    cross: NDArray[np.floating[Any]]
    """[Q, N], the base model's, on a scale of cosines: refined scores are averaged with them."""
    queries: NDArray[np.floating[Any]]
    """[Q, Q], within the queries' modality."""
    items: NDArray[np.floating[Any]]
    """[N, N], within the items' modality."""
    query_images: Indices
    """int64 [Q], the image that each query is or describes."""
    item_images: Indices
    """int64 [N], the same of each item; an item answers the queries of its image."""
    items_of_query: Indices
    """int64 [Q, H], the nearest first, as all lists."""
    queries_of_query: Indices
    """int64 [Q, H], usually led by the query itself."""
    items_of_item: Indices
    queries_of_item: Indices

    @classmethod
    def of(
        cls,
        image_text_IT: Scores,
        images_II: Scores,
        texts_TT: Scores,
        image_of_text: ArrayLike,
        depth: int = LIST_DEPTH,
    ) -> Self:
        """Makes the view of images that find texts; `reversed` gives the other.

        Lists have `depth` entries, or everything in a smaller corpus. Raises ValueError for
        matrices that do not fit together, NaN in one, and a text of no image.
        """
        image_count, text_count = image_text_IT.shape
        image_of_text_T = np.asarray(image_of_text, np.int64)
        for name, matrix, side in [
            ("images", images_II, image_count),
            ("texts", texts_TT, text_count),
        ]:
            if matrix.shape != (side, side):
                raise ValueError(f"similarities of {side} {name} have the shape {matrix.shape}")
        if image_of_text_T.shape != (text_count,):
            raise ValueError(f"{text_count} texts have images of shape {image_of_text_T.shape}")
        if text_count and not (0 <= image_of_text_T.min() <= image_of_text_T.max() < image_count):
            raise ValueError(f"a text's image is not one of the {image_count}, counted from 0")
        return cls(
            image_text_IT,
            images_II,
            texts_TT,
            np.arange(image_count),
            image_of_text_T,
            nearest_lists(image_text_IT, depth),
            nearest_lists(images_II, depth),
            nearest_lists(texts_TT, depth),
            nearest_lists(image_text_IT.T, depth),
        )

    def cut(self, depth: int) -> "SimilarityLists":
        """Returns the same with lists of `depth` entries at most."""
        return replace(
            self,
            items_of_query=self.items_of_query[:, :depth],
            queries_of_query=self.queries_of_query[:, :depth],
            items_of_item=self.items_of_item[:, :depth],
            queries_of_item=self.queries_of_item[:, :depth],
        )

    def reversed(self) -> "SimilarityLists":
        """Returns the view of the items that find the queries."""
        return SimilarityLists(
            self.cross.T,
            self.items,
            self.queries,
            self.item_images,
            self.query_images,
            self.queries_of_item,
            self.items_of_item,
            self.queries_of_query,
            self.items_of_query,
        )
