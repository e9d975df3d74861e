"""What is served is what was trained: real shards, the joined graph, and the exported network.

Only gRPC and Triton are absent; tests/system has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tandem.contract.content import Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tandem.lab.neighbours.leaprr.config import Profile
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, refine_as_served
from tandem.lab.neighbours.leaprr.served_networks import install_leaprr
from tandem.local.item_store.item_store import StoredEmbedding
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.model_io.inference.served_neighbour_model import graph_tensors
from tandem.model_io.repository.manifest import model_file
from tandem.model_io.repository.neighbour_manifest import NEIGHBOUR_MODEL, NeighbourModelManifest
from tandem.search.neighbours.joined_neighbours import joined_graph
from tandem.search.neighbours.neighbour_stage import NeighbourStage
from tandem.stages.hit import Hit
from tandem.stages.index_info import IndexInfo
from tandem.stages.neighbours import Graph, GraphScores, ShardNeighbourQuery, ShardNeighbours
from tandem.stages.reranking import Match
from tandem.stages.stage import OrderedHits
from tandem.wire.neighbours import graph_from_proto, graph_to_proto
from tests.support.neighbours.served_corpus import (
    DIMENSION,
    FINGERPRINT,
    Embeddings,
    ServedCorpus,
    tiny_leaprr,
)
from tests.support.orchestrator_svc.downstream import DESCRIPTION

CORPUS = ServedCorpus.made(40, 60, seed=3)
POOL_K = 60
SEARCH = SearchQuery(
    parts=[WeightedPart(TextContent("two crabs"))],
    index_id="scenes",
    target_modality=Modality.IMAGE,
    depth=Depth(40, 20, 10),
)


def shards_of(corpus: ServedCorpus, count: int) -> list[SearchableIndex]:
    """Returns the corpus's items over several shards, in turn."""
    shards = [SearchableIndex(IndexInfo(FINGERPRINT, DIMENSION)) for _ in range(count)]
    for modality in Modality:
        embeddings = corpus.of(modality)
        for number, shard in enumerate(shards):
            shard.load(
                StoredEmbedding(f"{modality.value}-{place}", modality, embeddings[place], {})
                for place in range(number, len(embeddings), count)
            )
    return shards


def found_on(
    shard: SearchableIndex, nodes: Embeddings, manifest: NeighbourModelManifest
) -> ShardNeighbours:
    """Returns a shard's neighbours as the orchestrator receives them."""
    return shard.find_neighbours(
        ShardNeighbourQuery(
            "scenes",
            FINGERPRINT,
            nodes,
            POOL_K,
            manifest.pillar_count + 1,
            manifest.neighbour_count,
        )
    )


def served_scores(
    corpus: ServedCorpus,
    query: Embeddings,
    modality: Modality,
    manifest: NeighbourModelManifest,
    repository: Path,
    shard_count: int = 3,
    shards: Sequence[SearchableIndex] = (),
) -> dict[int, float]:
    """Returns the scores of the query's nearest items, by their number in the corpus."""
    direction = manifest.text_query if modality is Modality.TEXT else manifest.image_query
    items = corpus.of(modality.other)
    nearest = np.argsort(-(items @ query), kind="stable")[: direction.item_count]
    nodes = np.concatenate([query[None], items[nearest]])
    shards = shards or shards_of(corpus, shard_count)
    graph = joined_graph(
        {number: found_on(shard, nodes, manifest) for number, shard in enumerate(shards)},
        nodes,
        modality,
        FINGERPRINT,
        manifest.describe(),
    )
    assert graph is not None
    scores = run(graph, manifest, repository)
    return dict(zip(nearest.tolist(), scores, strict=True))


def run(graph: Graph, manifest: NeighbourModelManifest, repository: Path) -> list[float]:
    """Returns the exported network's scores."""
    tensors = graph_tensors(graph, manifest)
    network = torch.jit.load(str(model_file(repository, NEIGHBOUR_MODEL)))
    arrays = (tensors.features, tensors.affinity, tensors.mask)
    with torch.inference_mode():
        scores = network(*map(torch.from_numpy, arrays))
    return scores[0, 1 : len(graph.nodes)].tolist()


def worst(served: dict[int, float], offline: dict[int, float]) -> float:
    """Returns the largest difference of two scorings of the same items."""
    assert served.keys() == offline.keys()
    return max(abs(served[item] - offline[item]) for item in served)


@pytest.fixture(params=["paper", "code"])
def profile(request: pytest.FixtureRequest) -> Profile:
    """Returns each profile."""
    chosen: Profile = request.param
    return chosen


def exported(model: LeaprrModel, folder: Path) -> NeighbourModelManifest:
    """Exports the networks into a folder."""
    return install_leaprr(model, FINGERPRINT, folder)


# Graphs without the query as a pillar are in test_a_query_that_it_does_not_hold_joins_the_corpus.
@pytest.mark.parametrize("modality", list(Modality))
@pytest.mark.parametrize("includes_query", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_query_that_the_index_holds_is_scored_as_offline(
    tmp_path: Path, profile: Profile, modality: Modality, includes_query: bool
) -> None:
    """Each of five queries, over three shards; the query is found once, not twice."""
    model = tiny_leaprr(profile, includes_query_pillar=includes_query)
    manifest = exported(model, tmp_path)

    for number in range(5):
        query = CORPUS.of(modality)[number]
        served = served_scores(CORPUS, query, modality, manifest, tmp_path)
        assert worst(served, CORPUS.offline_scores(model, modality, number)) <= 1e-5


@pytest.mark.parametrize("modality", list(Modality))
def test_directions_of_equal_size_are_distinguished(tmp_path: Path, modality: Modality) -> None:
    """A masked node more selects the network, and changes no score."""
    model = tiny_leaprr("code", image_query_neighbours=5)
    manifest = exported(model, tmp_path)

    served = served_scores(CORPUS, CORPUS.of(modality)[2], modality, manifest, tmp_path)

    assert (manifest.text_query.node_count, manifest.image_query.node_count) == (6, 7)
    assert worst(served, CORPUS.offline_scores(model, modality, 2)) <= 1e-5


# Graphs with the query as a pillar are in test_a_query_that_the_index_holds_is_scored_as_offline.
@pytest.mark.parametrize("modality", list(Modality))
@pytest.mark.parametrize("includes_query", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_query_that_it_does_not_hold_joins_the_corpus(
    tmp_path: Path, profile: Profile, modality: Modality, includes_query: bool
) -> None:
    """Offline it is the first of the corpus; the index has all the others."""
    model = tiny_leaprr(profile, includes_query_pillar=includes_query)
    manifest = exported(model, tmp_path)
    rest = CORPUS.of(modality)[1:]
    name = "texts" if modality is Modality.TEXT else "images"
    indexed = replace(CORPUS, **{name: rest})

    served = served_scores(indexed, CORPUS.of(modality)[0], modality, manifest, tmp_path)

    assert worst(served, CORPUS.offline_scores(model, modality, 0)) <= 1e-5


@dataclass(frozen=True, slots=True)
class Finder:
    """Answers for a shard without a socket."""

    shard: SearchableIndex

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns what it finds."""
        return self.shard.find_neighbours(query)


@dataclass(frozen=True, slots=True)
class Scorer:
    """Answers for a rerank_svc, whose Triton would run the same network."""

    manifest: NeighbourModelManifest
    repository: Path
    is_refusing_graphs = False

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns a description with the networks."""
        return replace(DESCRIPTION, neighbour_model=self.manifest.describe())

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Scores it after a message's way there and back."""
        sent = graph_from_proto(graph_to_proto(graph))
        return GraphScores(run(sent, self.manifest, self.repository), self.manifest.fingerprint)


def after_a_rerank(
    query: Embeddings, modality: Modality, logits_N: Embeddings, rerank_k: int
) -> OrderedHits:
    """Returns the hits of a query in the order of a search with this `rerank_k`."""
    items = CORPUS.of(modality.other)
    hits = [
        Hit(str(number), float(items[number] @ query), modality.other, items[number])
        for number in np.argsort(-(items @ query), kind="stable")
    ]
    matches = {hit.item_id: Match.of(logits_N[int(hit.item_id)], None) for hit in hits[:rerank_k]}
    hits[:rerank_k] = sorted(hits[:rerank_k], key=lambda hit: -matches[hit.item_id].logit)
    return OrderedHits("scenes", FINGERPRINT, [query], modality, {modality.other: hits}, matches)


# Pools of fewer items than affinity compares, than pillars and than a graph has, and of more.
@pytest.mark.parametrize("modality", list(Modality))
@pytest.mark.parametrize(
    ("rerank_k", "is_held"),
    [
        (2, True),
        (8, True),
        (20, False),
        pytest.param(5, False, marks=pytest.mark.slow),
        pytest.param(20, True, marks=pytest.mark.slow),
    ],
)
async def test_over_a_rerank_a_query_is_scored_as_offline(
    tmp_path: Path, profile: Profile, modality: Modality, rerank_k: int, is_held: bool
) -> None:
    """With the logits of its own pool alone, while offline all queries have theirs."""
    model = tiny_leaprr(profile, includes_query_pillar=is_held)
    manifest = install_leaprr(model, FINGERPRINT, tmp_path, rerank_k)
    logits_IT = np.random.default_rng(9).normal(size=(40, 60)).astype(np.float32)
    logits_QN = logits_IT.T if modality is Modality.TEXT else logits_IT
    lists = CORPUS.reranked_lists(logits_IT, rerank_k)
    orders = refine_as_served(model, lists)
    name = "texts" if modality is Modality.TEXT else "images"
    stored = CORPUS if is_held else replace(CORPUS, **{name: CORPUS.of(modality)[1:]})
    stage = NeighbourStage(
        [Finder(shard) for shard in shards_of(stored, 3)],  # type: ignore[misc]
        [Scorer(manifest, tmp_path)],  # type: ignore[list-item]
    )

    for number in range(2 if is_held else 1):
        query = CORPUS.of(modality)[number]
        ordered = after_a_rerank(query, modality, logits_QN[number], rerank_k)
        outcome = await stage.score(SEARCH, ordered, Deadline.after(60))
        other = after_a_rerank(query, modality, -logits_QN[number], rerank_k)
        control = await stage.score(SEARCH, other, Deadline.after(60))

        assert not outcome.degradations
        offline = CORPUS.offline_scores(model, modality, number, lists)
        assert worst({int(n): each for n, each in outcome.scores.items()}, offline) <= 1e-5
        differing = [abs(control.scores.get(str(n), 9) - offline[n]) for n in offline]
        assert max(differing) > 1e-4  # the positive control
        wanted = orders.images_of_text if modality is Modality.TEXT else orders.texts_of_image
        rest = [int(h.item_id) for h in ordered.hits[modality.other]][len(offline) :]
        first = sorted(offline, key=lambda item: -offline[item])
        assert wanted[number].tolist() == [*first, *rest]


@pytest.mark.parametrize("modality", list(Modality))
def test_changed_shards_are_scored_as_the_corpus_that_they_hold(
    tmp_path: Path, profile: Profile, modality: Modality
) -> None:
    """After items were replaced, deleted and ingested again, and with the old ones as a control."""
    model = tiny_leaprr(profile)
    manifest = exported(model, tmp_path)
    before = ServedCorpus.made(40, 60, seed=8)
    shards = shards_of(before, 3)
    for other in Modality:
        for number, shard in enumerate(shards):
            held = range(number, len(CORPUS.of(other)), 3)
            ids = [f"{other.value}-{place}" for place in held]
            shard.delete(ids[::2])
            shard.upsert(
                [
                    StoredEmbedding(item_id, other, CORPUS.of(other)[place], {})
                    for item_id, place in zip(ids, held, strict=True)
                ]
            )

    query = CORPUS.of(modality)[4]
    changed = served_scores(CORPUS, query, modality, manifest, tmp_path, shards=shards)
    stale = served_scores(CORPUS, query, modality, manifest, tmp_path, shards=shards_of(before, 3))

    offline = CORPUS.offline_scores(model, modality, 4)
    assert worst(changed, offline) <= 1e-5
    assert worst(stale, offline) > 1e-3


@pytest.mark.parametrize("modality", list(Modality))
def test_the_order_is_that_of_the_row_as_served(
    tmp_path: Path, profile: Profile, modality: Modality
) -> None:
    """The first items by score, the rest by similarity, as a search without a rerank returns."""
    model = tiny_leaprr(profile)
    manifest = exported(model, tmp_path)
    orders = refine_as_served(model, CORPUS.lists())
    is_text = modality is Modality.TEXT
    wanted = orders.images_of_text if is_text else orders.texts_of_image

    for number in range(3):
        query = CORPUS.of(modality)[number]
        scores = served_scores(CORPUS, query, modality, manifest, tmp_path)
        nearest = np.argsort(-(CORPUS.of(modality.other) @ query), kind="stable").tolist()
        first = sorted(scores, key=lambda item: -scores[item])
        assert wanted[number].tolist() == [*first, *nearest[len(first) :]]


def test_the_comparison_notices_a_fault(tmp_path: Path) -> None:
    """Positive control: another network, and a corpus that lacks a shard, score otherwise."""
    model = tiny_leaprr("code")
    manifest = exported(model, tmp_path)
    offline = CORPUS.offline_scores(model, Modality.TEXT, 0)
    other = CORPUS.offline_scores(tiny_leaprr("code", seed=2), Modality.TEXT, 0)
    query = CORPUS.texts[0]

    served = served_scores(CORPUS, query, Modality.TEXT, manifest, tmp_path)
    half = ServedCorpus(CORPUS.images, CORPUS.texts[::2])
    lacking = served_scores(half, query, Modality.TEXT, manifest, tmp_path)

    assert worst(served, offline) <= 1e-5
    assert worst(served, other) > 1e-3
    assert worst(lacking, offline) > 1e-3


def test_fewer_items_than_the_network_orders_are_padded(tmp_path: Path) -> None:
    """As offline, where the corpus has only three images for a network of five."""
    model = tiny_leaprr("paper", pillar_count=3, affinity_neighbours=2)
    manifest = exported(model, tmp_path)
    small = ServedCorpus.made(3, 8, seed=5)

    served = served_scores(small, small.texts[0], Modality.TEXT, manifest, tmp_path, 1)

    assert len(served) == 3
    assert worst(served, small.offline_scores(model, Modality.TEXT, 0)) <= 1e-5


@pytest.mark.parametrize(
    ("image_count", "text_count", "is_enough"), [(6, 5, True), (5, 40, False), (40, 4, False)]
)
def test_an_index_smaller_than_the_pillars_gives_no_graph(
    tmp_path: Path, image_count: int, text_count: int, is_enough: bool
) -> None:
    """Six of each are needed, and the query counts as a text."""
    manifest = exported(tiny_leaprr("paper"), tmp_path)
    corpus = ServedCorpus.made(image_count, text_count, seed=1)
    nodes = np.concatenate([CORPUS.texts[:1], corpus.images[:3]])
    [shard] = shards_of(corpus, 1)

    graph = joined_graph(
        {0: found_on(shard, nodes, manifest)},
        nodes,
        Modality.TEXT,
        FINGERPRINT,
        manifest.describe(),
    )

    assert (graph is not None) is is_enough
