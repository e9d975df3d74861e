"""Computes the neighbours of a gallery that a checkpoint has encoded."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.regions import RegionContent
from tandem.evaluation.gallery import DIRECTIONS, Gallery
from tandem.evaluation.offline import OfflineGallery, ScoredPools
from tandem.neighbours.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    corpus_neighbours,
    with_pools,
)
from tandem.neighbours.neighbour_lists import Indices

OnQuery = Callable[[str, int], None]


def gallery_digest(gallery: Gallery) -> str:
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


def gallery_neighbours(
    encoded: OfflineGallery,
    gallery: Gallery,
    source: NeighbourSource,
    depth: int,
    *,
    pool_size: int = 0,
    retriever: OfflineGallery | None = None,
    on_query: OnQuery = lambda *_: None,
) -> CorpusNeighbours:
    """Returns the `depth` nearest of each picture and caption, with the CE's logits of pools.

    `retriever` is the same gallery encoded by another checkpoint, whose bi-encoder then gives the
    embeddings (Sep+Coop). Raises ValueError for fewer than `depth` pictures or captions, for a pool
    larger than `depth`, and for distractors, of which the cross-encoder scores nothing.
    """
    if gallery.asking_count != len(gallery.chosen):
        raise ValueError("neighbours are of a gallery without distractors")
    if pool_size > depth:
        raise ValueError(f"a pool of {pool_size} exceeds lists of {depth}; take a larger k")
    embedded = retriever or encoded
    near = corpus_neighbours(
        source,
        gallery.item_ids[Modality.IMAGE],
        gallery.item_ids[Modality.TEXT],
        embedded.embeddings(Modality.IMAGE),
        embedded.embeddings(Modality.TEXT),
        [number for number, (_, captions) in enumerate(gallery.chosen) for _ in captions],
        depth,
    )
    if not pool_size:
        return near
    pools = {
        name: encoded.score(target, pool_size, partial(on_query, name), embedded)
        for name, target in DIRECTIONS.items()
    }
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
        image_pools.logits[images],
        text_pools.logits[texts],
    )


def _list_by_id(pools: ScoredPools, queries_Q: Indices, items_N: Indices, depth: int) -> Indices:
    """Returns int64 [Q, K]: the retrieved order, with queries and items numbered by id."""
    return np.argsort(items_N)[pools.retrieved[queries_Q, :depth]]
