"""Converts the queries, neighbours and graphs of reranking by neighbours to messages and back."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.field_wire import MODALITY_WIRE, duration_to_proto
from tandem.contract.inference_cost import COST_WIRE
from tandem.contract.record_wire import RecordWire
from tandem.errors import InternalFault, RequestMalformed
from tandem.stages.neighbours import (
    Graph,
    GraphScores,
    ModalityNeighbours,
    ShardNeighbourQuery,
    ShardNeighbours,
)
from tandem.v1 import index_service_pb2 as pb
from tandem.v1 import rerank_service_pb2 as rerank_pb
from tandem.wire import embedding_to_proto, embeddings_from_proto

_QUERY_WIRE = RecordWire(
    ShardNeighbourQuery, pb.FindNeighboursRequest, own=["nodes"], fingerprint="model_fingerprint"
)


def neighbour_query_to_proto(
    query: ShardNeighbourQuery, shard_map_version: int
) -> pb.FindNeighboursRequest:
    """Returns the request for the neighbours."""
    return _QUERY_WIRE.to_proto(
        query,
        query=embedding_to_proto(query.nodes[0]),
        candidates=map(embedding_to_proto, query.nodes[1:]),
        shard_map_version=shard_map_version,
    )


def neighbour_query_from_proto(request: pb.FindNeighboursRequest) -> ShardNeighbourQuery:
    """Returns the query for neighbours; raises what ShardNeighbourQuery and embeddings raise."""
    nodes = embeddings_from_proto([request.query, *request.candidates])
    return _QUERY_WIRE.from_proto(request, nodes=nodes)


def neighbours_to_proto(found: ShardNeighbours) -> pb.FindNeighboursResponse:
    """Returns the response; items are numbered by their rows."""
    return pb.FindNeighboursResponse(
        texts=_neighbourhood_to_proto(found[Modality.TEXT]),
        images=_neighbourhood_to_proto(found[Modality.IMAGE]),
    )


def neighbours_from_proto(
    response: pb.FindNeighboursResponse, query: ShardNeighbourQuery, shard: str
) -> ShardNeighbours:
    """Returns what the shard of that name found; raises InternalFault for an incomplete answer."""
    return {
        Modality.TEXT: _neighbourhood_from_proto(response.texts, query, shard),
        Modality.IMAGE: _neighbourhood_from_proto(response.images, query, shard),
    }


def graph_to_proto(graph: Graph) -> rerank_pb.ScoreGraphRequest:
    """Returns the request for the scores of a graph's items."""
    return rerank_pb.ScoreGraphRequest(
        model_fingerprint=graph.fingerprint,
        query_modality=MODALITY_WIRE.to_proto(graph.query_modality),
        nodes=[
            rerank_pb.GraphNode(
                embedding=embedding_to_proto(embedding),
                near_texts=near_texts,
                near_images=near_images,
            )
            for embedding, near_texts, near_images in zip(
                graph.nodes,
                graph.near[Modality.TEXT].tolist(),
                graph.near[Modality.IMAGE].tolist(),
                strict=True,
            )
        ],
        item_pillars=map(embedding_to_proto, graph.item_pillars),
        query_pillars=map(embedding_to_proto, graph.query_pillars),
        query_similarities=graph.query_similarities,
    )


def graph_from_proto(request: rerank_pb.ScoreGraphRequest) -> Graph:
    """Returns the graph; raises RequestMalformed, and what Graph and embeddings raise."""
    modality = MODALITY_WIRE.from_proto(request.query_modality)
    if modality is None:
        raise RequestMalformed(why="query_modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
    return Graph(
        request.model_fingerprint,
        modality,
        embeddings_from_proto([node.embedding for node in request.nodes]),
        embeddings_from_proto(request.item_pillars),
        embeddings_from_proto(request.query_pillars),
        {
            Modality.TEXT: _numbers("near_texts", [node.near_texts for node in request.nodes]),
            Modality.IMAGE: _numbers("near_images", [node.near_images for node in request.nodes]),
        },
        np.array(request.query_similarities, np.float32) if request.query_similarities else None,
    )


_SCORES_WIRE = RecordWire(GraphScores, rerank_pb.ScoreGraphResponse, cost=COST_WIRE)


def graph_scores_to_proto(scored: GraphScores, seconds: float) -> rerank_pb.ScoreGraphResponse:
    """Returns the response with the scores of a graph's items."""
    return _SCORES_WIRE.to_proto(scored, inference_duration=duration_to_proto(seconds))


graph_scores_from_proto = _SCORES_WIRE.from_proto


def _neighbourhood_to_proto(found: ModalityNeighbours) -> pb.Neighbourhood:
    # Embeddings are unit vectors within a tolerance, so a product may slightly exceed 1.
    similarities_VC = np.clip(found.similarities, -1.0, 1.0)
    return pb.Neighbourhood(
        pillars=map(embedding_to_proto, found.pillars),
        lists=[
            pb.NeighbourList(numbers=rows, similarities=similarities)
            for rows, similarities in zip(
                found.numbers.tolist(), similarities_VC.tolist(), strict=True
            )
        ],
    )


def _neighbourhood_from_proto(
    message: pb.Neighbourhood, query: ShardNeighbourQuery, shard: str
) -> ModalityNeighbours:
    lengths = {len(each.numbers) for each in message.lists}
    lengths |= {len(each.similarities) for each in message.lists}
    if len(message.lists) != len(query.nodes) or len(lengths) != 1:
        raise InternalFault(
            why=f"{shard} answered {len(message.lists)} lists, of lengths {sorted(lengths)}, for "
            f"{len(query.nodes)} embeddings"
        )
    return ModalityNeighbours(
        embeddings_from_proto(message.pillars).reshape(-1, query.nodes.shape[1]),
        np.array([each.numbers for each in message.lists], np.int64),
        np.array([each.similarities for each in message.lists], np.float32),
    )


def _numbers(name: str, lists: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    rows = [list(numbers) for numbers in lists]
    if len({len(row) for row in rows}) > 1:
        raise RequestMalformed(why=f"{name} of two nodes have different lengths")
    if any(number >= 2**63 for row in rows for number in row):
        raise RequestMalformed(why=f"{name} has a number of 2^63 or more")
    return np.array(rows, np.int64)
