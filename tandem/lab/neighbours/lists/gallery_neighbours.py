"""Computes the neighbours of a gallery that a checkpoint has encoded."""

from collections.abc import Mapping
from hashlib import sha256

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.regions import RegionContent
from tandem.lab.evaluation.gallery import Gallery
from tandem.lab.evaluation.offline import OfflineGallery, ScoredPools
from tandem.lab.neighbours.lists.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    corpus_neighbours,
    with_pools,
)
from tandem.lab.neighbours.lists.neighbour_lists import Indices


def corpus_digest(gallery: Gallery) -> str:
    """Returns a SHA-256 of all ids, captions and pictures, in their order."""
    digest = sha256()
    for record, captions in gallery.chosen:
        picture = gallery.content_of(record)
        content = repr(picture).encode() if isinstance(picture, RegionContent) else bytes(picture)
        for part in (
            record.record_id.encode(errors="surrogatepass"),
            sha256(content).digest(),
            *(each.text.encode(errors="surrogatepass") for each in captions),
        ):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def embedded_neighbours(
    embedded: OfflineGallery, gallery: Gallery, source: NeighbourSource, depth: int
) -> CorpusNeighbours:
    """Returns the `depth` nearest of each picture and caption by the bi-encoder.

    Raises ValueError for fewer than `depth` of either, and for distractors.
    """
    if gallery.asking_count != len(gallery.chosen):
        raise ValueError("neighbours are of a gallery without distractors")
    return corpus_neighbours(
        source,
        gallery.item_ids[Modality.IMAGE],
        gallery.item_ids[Modality.TEXT],
        embedded.embeddings(Modality.IMAGE),
        embedded.embeddings(Modality.TEXT),
        [number for number, (_, captions) in enumerate(gallery.chosen) for _ in captions],
        depth,
    )


def over_pools(
    near: CorpusNeighbours, gallery: Gallery, pools: Mapping[str, ScoredPools], pool_size: int
) -> CorpusNeighbours:
    """Returns the same over a cross-encoder, whose scored `pools` are given by direction.

    Their first `pool_size` items count.
    """
    depth = near.lists["texts_of_image"].shape[1]
    image_pools, text_pools = pools["image→text"], pools["text→image"]
    images, texts = (
        np.asarray(gallery.tie_order(each)) for each in (Modality.IMAGE, Modality.TEXT)
    )
    return with_pools(
        near,
        {
            "texts_of_image": _list_by_id(image_pools, images, texts, depth),
            "images_of_text": _list_by_id(text_pools, texts, images, depth),
        },
        image_pools.logits[images, :pool_size],
        text_pools.logits[texts, :pool_size],
    )


def _list_by_id(pools: ScoredPools, queries_Q: Indices, items_N: Indices, depth: int) -> Indices:
    """Returns int64 [Q, K]: the retrieved order, with queries and items numbered by id."""
    return np.argsort(items_N)[pools.retrieved[queries_Q, :depth]]
