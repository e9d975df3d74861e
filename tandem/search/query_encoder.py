"""Encodes a query's parts into embeddings for retrieval and tokens for the rerank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import (
    Content,
    Encoding,
    Modality,
    TextUse,
    Tokens,
)
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import MAX_EMBEDDING_COUNT
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.query import (
    GivenEncoding,
    SearchQuery,
    StoredItem,
)
from tandem.errors import (
    CrossEncoderMissing,
    EmbeddingInvalid,
    IndexNotFound,
    ItemNotFound,
    ModelMismatch,
    QueryInvalid,
    RankingInvalid,
    TandemError,
    TextTooLong,
    TokensInvalid,
)
from tandem.search.calls.fan_out import fan_out
from tandem.search.contents.item_reads import stored_encodings
from tandem.search.contents.stored_contents import StoredContents
from tandem.search.rerank.rerank import STOP_OF_ERROR
from tandem.search.shard_map import ShardMap
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.hit import Hit
from tandem.stages.shard import Shard
from tandem.stages.unit_length import check_unit_lengths
from tandem.wire import tokens_from_proto

# Of the sum of the weights: rounding leaves some 1e-7 of embeddings that cancel each other out.
_SHORTEST_SUM = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """Holds a query as the models see it."""

    embeddings: Sequence[NDArray[np.float32]]
    """float32 [d] of unit length: one, or one for each window of a long text."""
    modality: Modality
    """The modality of the heaviest part; recall is measured by it."""
    fingerprint: str
    readings: Mapping[Modality, Sequence[Tokens]] = field(default_factory=dict)
    """The tokens to score candidates of each modality against: one entry, or one an embedding.
    A modality without tokens is absent."""
    contents: Mapping[Modality, Content] = field(default_factory=dict)
    """The contents that these tokens were made of; parts that are stored or encoded have none."""
    text_uses: Sequence[TextUse] = ()
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """The encoding comes from the encoder's cache."""
    model_version: int = 0
    """The version that encoded its contents; 0 if it has none."""
    lacks_cross_encoder: bool = False
    """Whether a part that could be scored has empty tokens, as a bi-encoder alone makes them."""
    unread_stop: RerankStopReason = RerankStopReason.NOT_APPLICABLE
    """Why a modality without tokens is not reranked: a stored item may have failed to be read."""

    def tokens_for(self, modality: Modality, hits: Sequence[Hit]) -> Tokens | None:
        """Returns the tokens to score these hits against, or None; hits are best first.

        Of several windows, it is the one nearest to the best hit.
        """
        readings = self.readings.get(modality, ())
        if len(readings) > 1:
            return readings[hits[0].window_number if hits else 0]
        return readings[0] if readings else None


class QueryEncoder:
    """Composes a query's parts into one embedding."""

    def __init__(self, encoder: Encoder, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes `shards` by number, as many as the map has."""
        self._encoder = encoder
        self._shards = shards
        self._shard_map = shard_map
        self._stored_contents = StoredContents(encoder, shards, shard_map)

    async def encode(self, query: SearchQuery, deadline: Deadline) -> EncodedQuery:
        """Returns the query's encoding.

        Raises QueryInvalid for parts that cancel each other out, ItemNotFound for a missing item,
        ModelMismatch for parts of different models, CrossEncoderMissing for min_probability of a
        bi-encoder alone, and the encoder's errors. A stored item without tokens is read and encoded
        for the rerank.
        """
        given = {
            number: _read_given(part.source, part.weight)
            for number, part in enumerate(query.parts)
            if isinstance(part.source, GivenEncoding)
        }
        stored: Mapping[str, tuple[Encoding, str]] = {}
        if any(isinstance(part.source, StoredItem) for part in query.parts):
            both = await fan_out(self._encode(query, deadline), self._read_stored(query, deadline))
            made, stored = cast(tuple[EncodedBatch, dict[str, tuple[Encoding, str]]], both)
        else:
            made = await self._encode(query, deadline)
        parts = _read_parts(query, made, stored, given)
        stop, reading_cost = RerankStopReason.NOT_APPLICABLE, InferenceCost()
        if not query.rerank_disabled:
            stop, reading_cost = await self._read_unread(query, parts, deadline)
        encoded = replace(
            _composed(parts, made, query.modalities),
            unread_stop=stop,
            cost=made.cost + reading_cost,
        )
        if query.ranking.min_probability is not None and not any(
            modality in encoded.readings for modality in query.modalities
        ):
            if encoded.lacks_cross_encoder:
                raise CrossEncoderMissing(what="min_probability")
            raise RankingInvalid(
                why="min_probability needs the cross-encoder, which scores a text against an "
                "image: give the query a part of the other modality than the target, with tokens"
            )
        return encoded

    async def _read_unread(
        self, query: SearchQuery, parts: list["_ReadPart"], deadline: Deadline
    ) -> tuple[RerankStopReason, InferenceCost]:
        """Adds content and tokens to those stored items in `parts` that a rerank needs without any.

        Returns why it failed for one, and the cost. Retrieval needs no tokens, so an error other
        than ItemNotFound is raised only if the rerank is required.
        """
        is_required = query.rerank_required or query.ranking.min_probability is not None
        stop, cost = RerankStopReason.NOT_APPLICABLE, InferenceCost()
        for modality in query.modalities:
            heaviest = (part for part in _heaviest_first(parts) if part.modality is modality.other)
            part = next(heaviest, None)
            if part is None or not part.item_id or part.tokens is None or part.is_readable:
                continue
            try:
                read = await self._stored_contents.read(
                    query.index_id, part.item_id, part.fingerprint, deadline
                )
            except ItemNotFound:
                raise
            except TandemError as error:
                if is_required:
                    raise
                stop = STOP_OF_ERROR.get(type(error), RerankStopReason.UNAVAILABLE)
                continue
            tokens = part.tokens if read.tokens is None else read.tokens
            parts[parts.index(part)] = replace(part, content=read.content, tokens=tokens)
            cost += read.cost
        return stop, cost

    async def _encode(self, query: SearchQuery, deadline: Deadline) -> EncodedBatch:
        """Encodes all contents in one call; makes no call if there are none."""
        contents = [part.source for part in query.parts if isinstance(part.source, Content)]
        if not contents:
            return EncodedBatch([], "")
        return await self._encoder.encode(
            contents,
            deadline,
            purpose=EncodePurpose.QUERY,
            truncation_policy=query.truncation_policy,
        )

    async def _read_stored(
        self, query: SearchQuery, deadline: Deadline
    ) -> dict[str, tuple[Encoding, str]]:
        """Returns the stored items' encodings and fingerprints by id."""
        item_ids = {
            part.source.item_id: None for part in query.parts if isinstance(part.source, StoredItem)
        }
        found: dict[str, tuple[Encoding, str]] = {}

        async def read_from(number: int, owned: Sequence[str]) -> None:
            try:
                encodings, fingerprint = await stored_encodings(
                    self._shards[number], query.index_id, owned, deadline
                )
            except IndexNotFound:  # the shard has no item of the index
                return
            found.update((item_id, (made, fingerprint)) for item_id, made in encodings.items())

        owned_by = self._shard_map.group(query.index_id, list(item_ids))
        await fan_out(*(read_from(*entry) for entry in owned_by.items()))
        for item_id in item_ids:
            if item_id not in found:
                raise ItemNotFound(item_id=item_id)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _ReadPart:
    """Holds a part with its encoding."""

    embedding: NDArray[np.float32]
    modality: Modality
    tokens: Tokens | None
    fingerprint: str
    weight: float
    further_windows: Sequence[Encoding] = ()
    text_use: TextUse | None = None
    content: Content | None = None
    item_id: str = ""
    """Of a stored item."""

    @property
    def is_readable(self) -> bool:
        """Whether a cross-encoder may read it: by tokens, or a remote one by its content.

        A bi-encoder alone makes tokens that are empty.
        """
        if self.tokens is None:
            return False
        return not self.tokens.is_empty or self.content is not None


def _read_parts(
    query: SearchQuery,
    made: EncodedBatch,
    stored: Mapping[str, tuple[Encoding, str]],
    given: Mapping[int, _ReadPart],
) -> list[_ReadPart]:
    """Returns the parts in order; raises the first content's error, if any has one."""
    outcomes = iter(made.outcomes)
    parts = []
    for number, part in enumerate(query.parts):
        match part.source:
            case StoredItem(item_id):
                read = _of_encoding(*stored[item_id], part.weight)
                parts.append(replace(read, item_id=item_id))
            case GivenEncoding():
                parts.append(given[number])
            case content:
                outcome = next(outcomes)
                if isinstance(outcome, TandemError):
                    raise outcome
                read = _of_encoding(outcome, made.fingerprint, part.weight)
                parts.append(replace(read, content=content))
    return parts


def _read_given(given: GivenEncoding, weight: float) -> _ReadPart:
    """Returns the part of a caller's own encoding.

    Raises EmbeddingInvalid unless it has unit length, TokensInvalid, and QueryInvalid.
    """
    embedding = np.asarray(given.embedding, np.float32)
    check_unit_lengths(embedding[np.newaxis])
    tokens = None if given.tokens is None else tokens_from_proto(given.tokens, may_be_empty=True)
    if tokens is not None and tokens.modality is not given.modality:
        raise TokensInvalid(
            why=f"they are of {tokens.modality.value}, not of {given.modality.value}"
        )
    if not given.model_fingerprint:
        raise QueryInvalid(why="a given encoding has no model_fingerprint; send one")
    return _ReadPart(embedding, given.modality, tokens, given.model_fingerprint, weight)


def _of_encoding(encoding: Encoding, fingerprint: str, weight: float) -> _ReadPart:
    return _ReadPart(
        encoding.embedding,
        encoding.tokens.modality,
        encoding.tokens,
        fingerprint,
        weight,
        encoding.further_windows,
        encoding.text_use,
    )


def _composed(
    parts: Sequence[_ReadPart], made: EncodedBatch, modalities: Sequence[Modality]
) -> EncodedQuery:
    first = parts[0]
    for part in parts:
        if part.fingerprint != first.fingerprint:
            raise ModelMismatch(request=first.fingerprint, index=part.fingerprint)
    windows = first.further_windows if len(parts) == 1 else ()
    if len(windows) >= MAX_EMBEDDING_COUNT:
        raise TextTooLong(got=len(windows) + 1, limit=MAX_EMBEDDING_COUNT, unit="windows")
    return EncodedQuery(
        embeddings=[_point(parts), *(window.embedding for window in windows)],
        modality=max(parts, key=lambda part: part.weight).modality,
        fingerprint=first.fingerprint,
        readings=_readings(parts, [window.tokens for window in windows]),
        contents=_contents(parts),
        text_uses=[part.text_use for part in parts if part.text_use],
        cost=made.cost,
        is_model_unavailable=made.is_model_unavailable,
        model_version=made.model_version,
        lacks_cross_encoder=any(
            part.tokens is not None and part.tokens.is_empty and part.modality.other in modalities
            for part in parts
        ),
    )


def _point(parts: Sequence[_ReadPart]) -> NDArray[np.float32]:
    """Returns the parts' weighted sum, float32 [d] of unit length."""
    if len(parts) == 1 and parts[0].weight > 0:
        return parts[0].embedding  # bit for bit as the model made it
    dimension = len(parts[0].embedding)
    total_D = np.zeros(dimension, dtype=np.float64)
    for part in parts:
        if len(part.embedding) != dimension:
            raise EmbeddingInvalid(
                why=f"it has {len(part.embedding)} dimensions instead of {dimension}"
            )
        total_D += part.weight * part.embedding.astype(np.float64)
    length = float(np.linalg.norm(total_D))
    if length <= _SHORTEST_SUM * sum(abs(part.weight) for part in parts):
        raise QueryInvalid(why="its parts cancel each other out; change their weights")
    return (total_D / length).astype(np.float32)


def _readings(
    parts: Sequence[_ReadPart], windows: Sequence[Tokens]
) -> dict[Modality, Sequence[Tokens]]:
    """Returns the tokens to score candidates of each modality against."""
    readings: dict[Modality, Sequence[Tokens]] = {}
    for part in _heaviest_first(parts):
        if part.is_readable:
            assert part.tokens is not None
            readings.setdefault(part.modality.other, [part.tokens, *windows])
    return readings


def _contents(parts: Sequence[_ReadPart]) -> dict[Modality, Content]:
    """Returns the contents of the parts whose tokens are read."""
    read: dict[Modality, _ReadPart] = {}
    for part in _heaviest_first(parts):
        if part.is_readable:
            read.setdefault(part.modality.other, part)
    return {modality: part.content for modality, part in read.items() if part.content is not None}


def _heaviest_first(parts: Sequence[_ReadPart]) -> list[_ReadPart]:
    """Returns the parts of positive weight: a candidate should not match the others."""
    return sorted((part for part in parts if part.weight > 0), key=lambda part: -part.weight)
