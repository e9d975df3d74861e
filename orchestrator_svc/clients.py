"""The services behind, as plain functions over our own types. Protobuf ends here.

Each call gets what is left until `deadline_time` on the monotonic clock.
"""

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.hit import Hit, MatchScore, merge_windows
from tandem.attribute_wire import attributes_from_proto, attributes_to_proto, filter_to_proto
from tandem.attributes import Attributes
from tandem.chassis.channels import call
from tandem.content import Content, Encoding, Modality, Tokens, TruncationPolicy
from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    SequenceNotReached,
    TandemError,
    error_from_reason,
)
from tandem.filters import Filter
from tandem.inference_cost import InferenceCost, cost_from_proto
from tandem.v1 import (
    encoder_service_pb2,
    encoder_service_pb2_grpc,
    error_reason_pb2,
    index_service_pb2,
    index_service_pb2_grpc,
    rerank_service_pb2,
    rerank_service_pb2_grpc,
)
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    embedding_from_proto,
    embedding_to_proto,
    encoding_from_proto,
    modality_to_proto,
    tokens_from_proto,
    tokens_to_proto,
    truncation_policy_to_proto,
)

# What GetItems takes at once; a search may return more.
_MAX_GET_COUNT = 256


@dataclass(frozen=True, slots=True, eq=False)
class EncodedItem:
    """An item with all that a shard stores of it."""

    item_id: str
    content: Content
    encoding: Encoding
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchedItem:
    """What a shard gives back of an item."""

    content: Content
    attributes: Attributes


class EncodePurpose(enum.Enum):
    """What an encoding is for; names are the contract's."""

    QUERY = "query"
    INGEST = "ingest"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedContents:
    """What the encoder made of several contents."""

    outcomes: Sequence[Encoding | TandemError]
    """An encoding, or why there is none, for each content."""
    fingerprint: str
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """What is here was kept from earlier calls."""


@dataclass(frozen=True, slots=True)
class ShardHits:
    """One shard's nearest items, best first, and how many it has of the index and modality."""

    hits: Sequence[Hit]
    item_count: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many items were there, and where the shard's change log stands now."""

    count: int
    sequence: int


class EncoderClient:
    """Calls encoder_svc."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)

    async def encode(
        self,
        contents: Sequence[Content],
        deadline_time: float,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedContents:
        """Returns what became of each content, all in one call."""
        response: encoder_service_pb2.EncodeContentsResponse = await call(
            self._stub.EncodeContents,
            encoder_service_pb2.EncodeContentsRequest(
                contents=[content_to_proto(content) for content in contents],
                truncation_policy=truncation_policy_to_proto(truncation_policy),
                purpose=f"ENCODE_PURPOSE_{purpose.name}",
            ),
            service="encoder",
            timeout_seconds=_left(deadline_time),
        )
        if len(response.results) != len(contents):
            raise InternalFault(
                why=f"encoder answered {len(response.results)} of {len(contents)} contents"
            )
        return EncodedContents(
            [_outcome(result) for result in response.results],
            response.model_fingerprint,
            cost_from_proto(response.cost),
            response.model_unavailable,
        )


class ShardClient:
    """Calls one shard: its index_svc, and the rerank_svc beside it."""

    def __init__(
        self,
        index_channel: grpc.aio.Channel,
        rerank_channel: grpc.aio.Channel,
        number: int,
        shard_map_version: int = 1,
    ) -> None:
        """The shard refuses calls that go by another version of the shard map than its own."""
        self._index = index_service_pb2_grpc.IndexServiceStub(index_channel)
        self._rerank = rerank_service_pb2_grpc.RerankServiceStub(rerank_channel)
        self._index_name = f"index-{number}"
        self._rerank_name = f"rerank-{number}"
        self._shard_map_version = shard_map_version

    async def search(
        self,
        index_id: str,
        embeddings: Sequence[NDArray[np.float32]],
        fingerprint: str,
        modality: Modality,
        retrieve_k: int,
        deadline_time: float,
        *,
        query_modality: Modality,
        minimum_sequence: int = 0,
        where: Filter | None = None,
        are_embeddings_included: bool = False,
    ) -> ShardHits:
        """Returns the shard's items nearest to any of the embeddings, best first.

        Of those that the filter holds for, each once. They are out of a shard that has applied
        every change up to `minimum_sequence`; raises SequenceNotReached where it has not in time.
        """
        response: index_service_pb2.SearchEmbeddingsResponse = await call(
            self._index.SearchEmbeddings,
            index_service_pb2.SearchEmbeddingsRequest(
                index_id=index_id,
                queries=[embedding_to_proto(embedding) for embedding in embeddings],
                model_fingerprint=fingerprint,
                modality=modality_to_proto(modality),
                query_modality=modality_to_proto(query_modality),
                retrieve_k=retrieve_k,
                filter=filter_to_proto(where) if where is not None else None,
                minimum_sequence=minimum_sequence,
                shard_map_version=self._shard_map_version,
                embeddings_included=are_embeddings_included,
            ),
            service=self._index_name,
            timeout_seconds=_left(deadline_time),
        )
        # A shard that knows nothing of sequences would answer as if there were no minimum.
        if response.applied_sequence < minimum_sequence:
            raise SequenceNotReached(minimum=minimum_sequence, applied=response.applied_sequence)
        if len(response.hit_lists) != len(embeddings):
            raise InternalFault(
                why=f"{self._index_name} answered {len(response.hit_lists)} of "
                f"{len(embeddings)} queries"
            )
        windows = [
            [_hit_from_proto(hit, modality, are_embeddings_included) for hit in hit_list.hits]
            for hit_list in response.hit_lists
        ]
        return ShardHits(merge_windows(windows, retrieve_k), response.item_count)

    async def score(
        self,
        index_id: str,
        query: Tokens,
        fingerprint: str,
        item_ids: Sequence[str],
        deadline_time: float,
    ) -> Mapping[str, MatchScore]:
        """Returns scores by item id; an item that is no longer there is left out."""
        response: rerank_service_pb2.ScoreCandidatesResponse = await call(
            self._rerank.ScoreCandidates,
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=index_id,
                query=tokens_to_proto(query),
                model_fingerprint=fingerprint,
                item_ids=item_ids,
            ),
            service=self._rerank_name,
            timeout_seconds=_left(deadline_time),
        )
        return {
            item_id: MatchScore(score.match_logit, score.match_probability)
            for item_id, score in zip(item_ids, response.scores, strict=True)
            if score.HasField("match_logit")
        }

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids; one that is no longer there is left out."""
        fetched: dict[str, FetchedItem] = {}
        for start in range(0, len(item_ids), _MAX_GET_COUNT):
            response: index_service_pb2.GetItemsResponse = await call(
                self._index.GetItems,
                index_service_pb2.GetItemsRequest(
                    index_id=index_id, item_ids=item_ids[start : start + _MAX_GET_COUNT]
                ),
                service=self._index_name,
                timeout_seconds=_left(deadline_time),
            )
            fetched |= {
                item.item_id: FetchedItem(
                    content_from_proto(item.content), attributes_from_proto(item.attributes)
                )
                for item in response.items
            }
        return fetched

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns at most 256 items' encodings by id, and the fingerprint; without what is gone."""
        response: index_service_pb2.GetItemsResponse = await call(
            self._index.GetItems,
            index_service_pb2.GetItemsRequest(
                index_id=index_id, item_ids=item_ids, encodings_included=True
            ),
            service=self._index_name,
            timeout_seconds=_left(deadline_time),
        )
        encodings = {
            item.item_id: Encoding(
                embedding_from_proto(item.embedding), tokens_from_proto(item.tokens)
            )
            for item in response.encoded_items
        }
        return encodings, response.model_fingerprint

    async def upsert(
        self,
        index_id: str,
        fingerprint: str,
        items: Sequence[EncodedItem],
        request_id: str,
        deadline_time: float,
    ) -> int:
        """Stores the items, all or none; returns when they are durable and searchable.

        Returns the sequence at which the change log then stands. A repeated `request_id` is
        answered as the first time; an empty one is not remembered.
        """
        response: index_service_pb2.UpsertItemsResponse = await call(
            self._index.UpsertItems,
            index_service_pb2.UpsertItemsRequest(
                index_id=index_id,
                model_fingerprint=fingerprint,
                items=[_item_to_proto(item) for item in items],
                request_id=request_id,
                shard_map_version=self._shard_map_version,
            ),
            service=self._index_name,
            timeout_seconds=_left(deadline_time),
        )
        return response.sequence

    async def delete(
        self, index_id: str, item_ids: Sequence[str], request_id: str, deadline_time: float
    ) -> Deleted:
        """Deletes the items, all or none; `request_id` as for `upsert`."""
        response: index_service_pb2.DeleteItemsResponse = await call(
            self._index.DeleteItems,
            index_service_pb2.DeleteItemsRequest(
                index_id=index_id,
                item_ids=item_ids,
                request_id=request_id,
                shard_map_version=self._shard_map_version,
            ),
            service=self._index_name,
            timeout_seconds=_left(deadline_time),
        )
        return Deleted(response.deleted_count, response.sequence)


def _left(deadline_time: float) -> float:
    left = deadline_time - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded(what="the call before all its stages")
    return left


def _outcome(result: encoder_service_pb2.EncodeResult) -> Encoding | TandemError:
    if result.WhichOneof("outcome") == "encoding":
        return encoding_from_proto(result.encoding)
    return error_from_reason(_reason(result.error.reason), result.error.message, {})


def _reason(value: int) -> str:
    try:
        return error_reason_pb2.ErrorReason.Name(value).removeprefix("ERROR_REASON_")
    except ValueError:  # one that a newer encoder knows
        return str(value)


def _hit_from_proto(
    hit: index_service_pb2.Hit, modality: Modality, is_embedding_included: bool
) -> Hit:
    embedding = embedding_from_proto(hit.embedding) if is_embedding_included else None
    return Hit(hit.item_id, hit.similarity, modality, embedding)


def _item_to_proto(item: EncodedItem) -> index_service_pb2.EncodedItem:
    return index_service_pb2.EncodedItem(
        item_id=item.item_id,
        content=content_to_proto(item.content),
        embedding=embedding_to_proto(item.encoding.embedding),
        tokens=tokens_to_proto(item.encoding.tokens),
        attributes=attributes_to_proto(item.attributes),
    )
