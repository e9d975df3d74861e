"""Orders an encoded gallery by neighbours: by LeaPRR, or by a method without labels.

Each order reads the whole gallery, queries included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from tandem.contract.content import Modality
from tandem.lab.evaluation.gallery import Gallery
from tandem.lab.evaluation.offline import OfflineGallery, ScoredPools
from tandem.lab.evaluation.offline_report import NamedOrder
from tandem.lab.neighbours.baselines.label_free import Setting, search_sides
from tandem.lab.neighbours.leaprr.query_graphs import needed_depth
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    RefinedOrders,
    refine,
    refine_as_served,
)
from tandem.lab.neighbours.lists.corpus_neighbours import CorpusNeighbours, NeighbourSource
from tandem.lab.neighbours.lists.gallery_neighbours import (
    embedded_neighbours,
    over_pools,
)

LIST_DEPTH: Final = 100
AS_SERVED: Final = ", as served"
"""Ends the name of the order that a search has, of networks that average the whole matrix."""


@dataclass(frozen=True, slots=True)
class LeaprrMethod:
    """Reranks by trained networks."""

    name: str
    """For the report, such as "LeaPRR seed 1"."""
    base: str
    """The base whose lists the networks learned from."""
    model: LeaprrModel
    list_depth: int
    """Entries of the lists that the networks learned from."""

    def check_fits(self, image_count: int, text_count: int) -> None:
        """Raises ValueError for a gallery of too few items."""
        count = needed_depth(self.model.config)
        if min(image_count, text_count) < count:
            raise ValueError(
                f"{self.name} compares with {count} images and texts, and a gallery has "
                f"{image_count} and {text_count}: measure a larger gallery, in fewer folds, or "
                "leave the networks out"
            )

    def orders(self, near: CorpusNeighbours) -> Iterator[tuple[str, RefinedOrders]]:
        """Yields names and orders of ids' numbers; none over another base."""
        if self.base != near.base:
            return
        # So that also pillars from the bottom are those that the networks know.
        lists = near.similarity_lists().cut(self.list_depth)
        yield self.name, refine(self.model, lists)
        if self.model.config.averages_whole_matrix:
            yield f"{self.name}{AS_SERVED}", refine_as_served(self.model, lists)


@dataclass(frozen=True, slots=True)
class LabelFreeMethod:
    """Reranks without labels, by the settings chosen on dev."""

    name: str
    settings: Mapping[str, Setting]
    """By base."""

    def check_fits(self, image_count: int, text_count: int) -> None:
        """Raises ValueError for a gallery of too few items."""
        for setting in self.settings.values():
            setting.check_fits(self.name, image_count, text_count)

    def orders(self, near: CorpusNeighbours) -> Iterator[tuple[str, RefinedOrders]]:
        """Yields the name and the order of ids' numbers; none over a base without settings."""
        if near.base in self.settings:
            by_image, by_text = search_sides(near)
            order_of = self.settings[near.base].order_of
            yield self.name, RefinedOrders(order_of(by_image), order_of(by_text))


@dataclass(frozen=True, slots=True)
class NeighbourOrders:
    """Gives the orders by neighbours of one gallery, for offline_report."""

    gallery: Gallery
    source: NeighbourSource
    pool_sizes: Sequence[int]
    """Sizes of the cross-encoder's pools that are bases too, in addition to BE."""
    methods: Sequence[LeaprrMethod | LabelFreeMethod]

    def __call__(
        self, embedded: OfflineGallery, pools: Mapping[str, ScoredPools]
    ) -> Iterator[NamedOrder]:
        """Yields both directions' orders of each method over each base that it applies to."""
        depths = (each.list_depth for each in self.methods if isinstance(each, LeaprrMethod))
        depth = max(LIST_DEPTH, *self.pool_sizes, *depths, 0)
        smallest = min(len(self.gallery.records), len(self.gallery.pairs))
        by_be = embedded_neighbours(embedded, self.gallery, self.source, min(smallest, depth))
        over = (
            over_pools(by_be, self.gallery, pools, min(size, smallest)) for size in self.pool_sizes
        )
        for near in chain([by_be], over):
            for method in self.methods:
                for name, orders in method.orders(near):
                    yield from self._named(f"{near.base} + {name}", near.pool_size, orders)

    def _named(self, name: str, pool_size: int, orders: RefinedOrders) -> Iterator[NamedOrder]:
        """Yields both directions' orders of the gallery's records."""
        images, texts = (
            np.asarray(self.gallery.tie_order(each)) for each in (Modality.IMAGE, Modality.TEXT)
        )
        # Those of ids' numbers, with queries and items numbered as the gallery's are.
        texts_found = texts[orders.texts_of_image][np.argsort(images)]
        images_found = images[orders.images_of_text][np.argsort(texts)]
        yield NamedOrder("text→image", name, pool_size, images_found)
        yield NamedOrder("image→text", name, pool_size, texts_found)
