"""Orders an encoded gallery by neighbours: by LeaPRR, or by a method without labels.

Each order reads the whole gallery, queries included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    order_by_record,
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


@dataclass(frozen=True, slots=True)
class LabelFreeMethod:
    """Reranks without labels, by the settings chosen on dev."""

    name: str
    settings: Mapping[str, Setting]
    """By base."""


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
        for near in bases(embedded, self.gallery, self.source, pools, self.pool_sizes, depth):
            for method in self.methods:
                for name, orders in self._orders(method, near):
                    yield from self._named(f"{near.base} + {name}", near.pool_size, orders)

    def _named(self, name: str, pool_size: int, orders: RefinedOrders) -> Iterator[NamedOrder]:
        """Yields both directions' orders of the gallery's records."""
        images, texts = (
            np.asarray(self.gallery.tie_order(each)) for each in (Modality.IMAGE, Modality.TEXT)
        )
        texts_found = order_by_record(orders.texts_of_image, images, texts)
        images_found = order_by_record(orders.images_of_text, texts, images)
        yield NamedOrder("text→image", name, pool_size, images_found)
        yield NamedOrder("image→text", name, pool_size, texts_found)

    def _orders(
        self, method: LeaprrMethod | LabelFreeMethod, near: CorpusNeighbours
    ) -> Iterator[tuple[str, RefinedOrders]]:
        """Yields names and orders of ids' numbers; none if the method is not for this base."""
        if isinstance(method, LeaprrMethod):
            if method.base != near.base:
                return
            # So that also pillars from the bottom are those that the networks know.
            lists = near.similarity_lists().cut(method.list_depth)
            yield method.name, refine(method.model, lists)
            if method.model.config.averages_whole_matrix:
                yield f"{method.name}{AS_SERVED}", refine_as_served(method.model, lists)
        elif near.base in method.settings:
            by_image, by_text = search_sides(near)
            order_of = method.settings[near.base].order_of
            yield method.name, RefinedOrders(order_of(by_image), order_of(by_text))


def bases(
    embedded: OfflineGallery,
    gallery: Gallery,
    source: NeighbourSource,
    pools: Mapping[str, ScoredPools],
    pool_sizes: Sequence[int],
    depth: int,
) -> Iterator[CorpusNeighbours]:
    """Yields the gallery's neighbours by the bi-encoder, and over pools of each size.

    Lists have `depth` entries, or all in a smaller gallery.
    """
    smallest = min(len(gallery.records), len(gallery.pairs))
    near = embedded_neighbours(embedded, gallery, source, min(smallest, depth))
    yield near
    for pool_size in pool_sizes:
        yield over_pools(near, gallery, pools, min(pool_size, smallest))
