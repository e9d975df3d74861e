"""Neighbours in a pool around a query: of the items as they are now, and exact where all fit."""

import numpy as np
import pytest

from tandem.contract.content import Modality
from tandem.errors import EmbeddingInvalid, ModelMismatch
from tandem.local.item_store.item_store import StoredEmbedding
from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.neighbourhood import neighbourhood
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.stages.index_info import IndexInfo
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery
from tests.support.index_svc.unit_rows import DIMENSION, unit_rows, unit_vectors

FINGERPRINT = "model-a"


def asked(embeddings_VD: F32, pool_k: int, **fields: object) -> ShardNeighbourQuery:
    """Returns a query for 4 pillars and 3 neighbours."""
    wanted = {"pillar_k": 4, "neighbour_k": 3, "fingerprint": FINGERPRINT} | fields
    return ShardNeighbourQuery(
        index_id="scenes",
        nodes=embeddings_VD,
        pool_k=pool_k,
        **wanted,  # type: ignore[arg-type]
    )


def nearest(embedding_D: F32, items_ND: F32, count: int) -> list[int]:
    """Returns the places of the nearest items by a full sort."""
    return [int(place) for place in np.argsort(-(items_ND @ embedding_D), kind="stable")[:count]]


def test_a_worked_example() -> None:
    """Angles of 0, 10, 30, 60 and 100 degrees: the pool of 3 about 5 degrees hides 60 from 50."""
    radians = np.radians([0, 10, 30, 60, 100])
    rows_ND = np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)
    index = SearchableIndex(IndexInfo(FINGERPRINT, 2))
    index.load(
        StoredEmbedding(str(place), Modality.IMAGE, row_D, {})
        for place, row_D in enumerate(rows_ND)
    )
    wanted = np.radians([4, 50])
    embeddings_VD = np.stack([np.cos(wanted), np.sin(wanted)], axis=1).astype(np.float32)

    small = index.find_neighbours(asked(embeddings_VD, 3, pillar_k=2, neighbour_k=2))
    whole = index.find_neighbours(asked(embeddings_VD, 5, pillar_k=2, neighbour_k=2))

    for found in (small, whole):
        assert found[Modality.IMAGE].pillars.tolist() == rows_ND[:2].tolist()
        assert found[Modality.IMAGE].numbers[0].tolist() == [0, 1]
    assert small[Modality.IMAGE].numbers[1].tolist() == [2, 1]
    assert whole[Modality.IMAGE].numbers[1].tolist() == [3, 2]
    assert whole[Modality.IMAGE].similarities[1] == pytest.approx(
        np.cos(np.radians([10, 20])), abs=1e-6
    )
    # There are no texts.
    assert whole[Modality.TEXT].pillars.shape == (0, 2)
    assert whole[Modality.TEXT].numbers.shape == (2, 0)


def test_faiss_adds_items_near_a_candidate_but_far_from_the_query() -> None:
    """Without it (no FAISS index) the pool around the query has few of the candidates' nearest."""
    rows, items_ND = unit_rows(4_000, 1), unit_vectors(4_000, 1)
    index = FaissIndex.build("IVF16,Flat", rows, rows.row_count)
    index.tune({"nprobe": 16})
    nodes_VD = np.concatenate([unit_vectors(1, 2), items_ND[:30]])

    def share(part: ModalityIndex) -> float:
        found = neighbourhood(part, asked(nodes_VD, 40)).numbers
        true = [nearest(each_D, items_ND, 3) for each_D in nodes_VD]
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(true, found, strict=True)]))

    assert share(ModalityIndex(rows, index)) > 0.8
    assert share(ModalityIndex(rows)) < 0.2


def test_a_deleted_item_is_not_a_neighbour() -> None:
    """FAISS still has its row."""
    rows, items_ND = unit_rows(2_000, 1), unit_vectors(2_000, 1)
    index = FaissIndex.build("IVF8,Flat", rows, rows.row_count)
    index.tune({"nprobe": 8})
    part, query = ModalityIndex(rows, index), asked(items_ND[[900, 3]], 10)
    before = neighbourhood(part, query).numbers[1]
    assert before[0] == 3

    part.delete(["1-3"])

    assert 3 in index.near_each(items_ND[[3]], 1, effort=1.0)
    assert neighbourhood(part, query).numbers[1][0] == before[1]


def test_rows_that_faiss_does_not_have_yet_are_neighbours() -> None:
    """They are near a candidate, which is one of them, and far from the query."""
    rows, query_D = unit_rows(2_000, 1), unit_vectors(1, 2)[0]
    index = FaissIndex.build("IVF8,Flat", rows, rows.row_count)
    index.tune({"nprobe": 8})
    part = ModalityIndex(rows, index)
    near_D = query_D + 0.02 * unit_vectors(30, 3)
    group_D = -query_D + 0.02 * unit_vectors(6, 4)
    for name, group in [("near", near_D), ("group", group_D)]:
        units = group / np.linalg.norm(group, axis=1, keepdims=True)
        part.upsert(
            [
                StoredEmbedding(f"{name}-{number}", Modality.IMAGE, unit_D, {})
                for number, unit_D in enumerate(units.astype(np.float32))
            ]
        )
    group_rows = np.array([rows.ids.row_of(f"group-{number}") for number in range(6)])
    candidate_D = rows.gather(group_rows[:1])[0]
    part.delete(["group-5"])

    found = neighbourhood(part, asked(np.stack([query_D, candidate_D]), 10)).numbers[1]

    live = group_rows[:5]
    assert found.tolist() == [live[each] for each in nearest(candidate_D, rows.gather(live), 3)]


def test_many_deleted_items_around_a_candidate_hide_no_others() -> None:
    """FAISS is asked for nine rows, and a hundred nearer ones are dead."""
    rows, items_ND = unit_rows(2_000, 1), unit_vectors(2_000, 1)
    index = FaissIndex.build("IVF8,Flat", rows, rows.row_count)
    index.tune({"nprobe": 48})
    part = ModalityIndex(rows, index)
    query_D, candidate_D = items_ND[900], -items_ND[900]
    order = nearest(candidate_D, items_ND, 103)
    part.delete([f"1-{place}" for place in order[:100]])

    found = neighbourhood(part, asked(np.stack([query_D, candidate_D]), 10)).numbers[1]

    assert found.tolist() == order[100:]


def test_a_small_shard_gives_all_that_it_has() -> None:
    found = neighbourhood(ModalityIndex(unit_rows(2, 1)), asked(unit_vectors(3, 2), 10))

    assert found.numbers.shape == (3, 2)
    assert len(found.pillars) == 2


def test_neighbours_follow_upserts_and_deletes() -> None:
    """Nothing is kept: what a write did holds in the next answer."""
    items_ND = unit_vectors(40, 1)
    index = SearchableIndex(IndexInfo(FINGERPRINT, DIMENSION))
    index.load(StoredEmbedding(str(n), Modality.TEXT, items_ND[n], {}) for n in range(40))
    query = asked(items_ND[:3], 40)

    def texts() -> ModalityNeighbours:
        return index.find_neighbours(query)[Modality.TEXT]

    before = texts()
    assert before.numbers[:, 0].tolist() == [0, 1, 2]  # each is its own nearest
    assert before.similarities[:, 0] == pytest.approx(1.0)

    index.delete(["1"])
    after_deletion = texts()
    assert after_deletion.numbers[1].tolist() == [
        row for row in nearest(items_ND[1], items_ND, 4) if row != 1
    ]
    index.upsert([StoredEmbedding("again", Modality.TEXT, items_ND[1], {})])
    assert texts().similarities.tolist() == before.similarities.tolist()
    # Another content under an old id: the old one is gone.
    index.upsert([StoredEmbedding("again", Modality.IMAGE, items_ND[1], {})])
    assert texts().similarities.tolist() == after_deletion.similarities.tolist()
    assert index.find_neighbours(query)[Modality.IMAGE].numbers.shape == (3, 1)


def test_embeddings_of_another_model_are_refused() -> None:
    index = SearchableIndex(IndexInfo(FINGERPRINT, DIMENSION))

    with pytest.raises(ModelMismatch):
        index.find_neighbours(asked(unit_vectors(2, 1), 10, fingerprint="model-b"))
    with pytest.raises(EmbeddingInvalid, match="8 dimensions instead of 16"):
        index.find_neighbours(asked(np.eye(2, 8, dtype=np.float32), 10))
