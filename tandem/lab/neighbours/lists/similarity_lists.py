"""Holds a corpus's similarities and the nearest of each, from one direction's view.

The matrices may be float16, and mapped from a file. Everything else that LeaPRR reads is made from
them for one batch. Shapes: Q queries, N items, I images, T texts, H list.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.lab.neighbours.lists.neighbour_lists import Indices


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

    @property
    def depth(self) -> int:
        """The entries of the shortest lists."""
        of_queries, of_items = self.queries_of_query, self.queries_of_item
        lists = self.items_of_query, self.items_of_item, of_queries, of_items
        return min(each.shape[1] for each in lists)

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
