"""Converts the messages of FindNeighbours to plain types and back, checking what comes in."""

from collections.abc import Mapping

from index_svc.retrieval.neighbourhood import Neighbourhood, NeighbourQuery, neighbour_lists
from tandem.contract.content import Modality
from tandem.contract.identifiers import check_index_id
from tandem.contract.limits import MAX_NEIGHBOUR_CANDIDATE_COUNT, MAX_RETRIEVE_K
from tandem.errors import BatchSizeOutOfRange, KOutOfRange
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import embedding_to_proto, embeddings_from_proto
from tandem.wire.retrieval import check_fingerprint


def neighbour_query_from_proto(request: pb.FindNeighboursRequest) -> NeighbourQuery:
    """Returns the query for neighbours.

    Raises IndexIdInvalid, RequestMalformed, KOutOfRange, BatchSizeOutOfRange, EmbeddingInvalid.
    """
    _check_k("pool_k", request.pool_k, MAX_RETRIEVE_K)
    _check_k("pillar_k", request.pillar_k, request.pool_k)
    _check_k("neighbour_k", request.neighbour_k, request.pool_k)
    if len(request.candidates) > MAX_NEIGHBOUR_CANDIDATE_COUNT:
        raise BatchSizeOutOfRange(
            name="candidates",
            got=len(request.candidates),
            low=0,
            high=MAX_NEIGHBOUR_CANDIDATE_COUNT,
        )
    return NeighbourQuery(
        index_id=check_index_id(request.index_id),
        fingerprint=check_fingerprint(request.model_fingerprint),
        embeddings=embeddings_from_proto([request.query, *request.candidates]),
        pool_k=request.pool_k,
        pillar_k=request.pillar_k,
        neighbour_k=request.neighbour_k,
    )


def neighbours_to_proto(found: Mapping[Modality, Neighbourhood]) -> pb.FindNeighboursResponse:
    """Returns the response; a row's number stands for its item."""
    return pb.FindNeighboursResponse(
        texts=_neighbourhood_to_proto(found[Modality.TEXT]),
        images=_neighbourhood_to_proto(found[Modality.IMAGE]),
    )


def _neighbourhood_to_proto(found: Neighbourhood) -> pb.Neighbourhood:
    return pb.Neighbourhood(
        pillars=map(embedding_to_proto, found.pillars),
        lists=[
            pb.NeighbourList(numbers=rows, similarities=similarities)
            for rows, similarities in neighbour_lists(found)
        ],
    )


def _check_k(name: str, count: int, high: int) -> None:
    if not 1 <= count <= high:
        raise KOutOfRange(name=name, got=count, low=1, high=high)
