"""Defines how well documents match a query, and converts it from and to messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tandem.contract.content import Content, TextUse, TruncationPolicy
from tandem.contract.inference_cost import COST_WIRE, InferenceCost
from tandem.contract.model_description import relevance
from tandem.contract.record_wire import Field, RecordWire, or_error, repeated
from tandem.contract.search.answer_names import ErrorReason
from tandem.contract.search.answer_wire import (
    CONTENT_WIRE,
    ITEM_ERROR_WIRE,
    TEXT_USE_WIRE,
    WITHHELD_WIRE,
    content_from_proto,
    content_to_proto,
)
from tandem.contract.search.query import StoredItem
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.errors import ContentMissing, TandemError, Uncalibrated
from tandem.v1 import content_service_pb2 as pb

Document: TypeAlias = Content | StoredItem


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """Asks how well documents match a query."""

    query: Content
    documents: Sequence[Document | TandemError]
    """A document that is an error gets it as its score's."""
    index_id: str = ""
    """Of the stored items; empty without any."""
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR


@dataclass(frozen=True, slots=True)
class DocumentScore:
    """How well one document matches the query; or why it has no score."""

    match_logit: float | None
    """The cross-encoder's logit; None if it did not score the document."""
    match_probability: float | None
    """0 to 1, of the logit or, of a text for a text, of the similarity; None if not calibrated."""
    similarity: float | None
    """The bi-encoder's cosine similarity, -1 to 1; None for a stored item."""
    error: TandemError | None = None
    text_use: TextUse | None = None
    """How much of a text the model read."""

    @property
    def is_truncated(self) -> bool:
        """Whether it is a text of which the model read the beginning."""
        return self.text_use is not None and self.text_use.is_truncated

    @property
    def relevance(self) -> float | None:
        """The match on a scale of 0 to 1, or the similarity where it is all that there is.

        It is a probability only where `match_probability` is set.
        """
        if self.match_logit is None and self.match_probability is None:
            return self.similarity
        return relevance(self.match_logit or 0.0, self.match_probability)


@dataclass(frozen=True, slots=True)
class ScoredDocuments:
    """The scores of the documents, in their order."""

    scores: tuple[DocumentScore, ...]
    model_fingerprint: str
    reranker: str
    """The cross-encoder that scored them; empty if none did."""
    cost: InferenceCost
    probability_withheld: ErrorReason | None = None
    """Why scored documents have no `match_probability`: UNCALIBRATED; None if none is withheld."""
    query_text_use: TextUse | None = None
    scales_differ: bool = False
    """Whether texts and images were scored, and not all of them have a probability."""

    def best(self, count: int | None = None) -> list[tuple[int, DocumentScore]]:
        """Returns the places and scores of at most `count` documents, best first, errors last.

        Raises ValueError for a negative count, and Uncalibrated where `scales_differ`.
        """
        if count is not None and count < 0:
            raise ValueError(f"{count} documents cannot be kept; give 0 or more, or None for all")
        if self.scales_differ:
            raise Uncalibrated(
                what="one order of texts and images",
                why="not all of these have a match probability",
                remedy="rerank texts and images apart, or calibrate the model (tandem models "
                "calibrate); an image as query has no such order",
            )
        ranked = sorted(enumerate(self.scores), key=lambda each: _key(each[1]), reverse=True)
        return ranked[:count]


def _key(score: DocumentScore) -> tuple[bool, float, float]:
    """Returns what to sort by: equal probabilities keep the order of their scores."""
    relevance, exact = score.relevance, score.match_logit
    if relevance is None:
        return (False, 0.0, 0.0)
    return (True, relevance, (score.similarity or 0.0) if exact is None else exact)


def _document_to_proto(document: Document | TandemError) -> pb.Document:
    assert not isinstance(document, TandemError), "a client refuses the whole query"
    if isinstance(document, StoredItem):
        return pb.Document(item_id=document.item_id)
    return pb.Document(content=content_to_proto(document))


def _document_from_proto(message: pb.Document) -> Document:
    match message.WhichOneof("source"):
        case "content":
            return content_from_proto(message.content)
        case "item_id":
            return StoredItem(message.item_id)
        case _:
            raise ContentMissing


DOCUMENT_QUERY_WIRE = RecordWire(
    DocumentQuery,
    pb.ScoreDocumentsRequest,
    query=CONTENT_WIRE,
    documents=repeated(Field(_document_to_proto, partial(or_error, _document_from_proto))),
    truncation_policy=TRUNCATION_POLICY_WIRE,
)
SCORED_WIRE = RecordWire(
    ScoredDocuments,
    pb.ScoreDocumentsResponse,
    scores=repeated(
        RecordWire(DocumentScore, pb.DocumentScore, error=ITEM_ERROR_WIRE, text_use=TEXT_USE_WIRE)
    ),
    cost=COST_WIRE,
    probability_withheld=WITHHELD_WIRE,
    query_text_use=TEXT_USE_WIRE,
)
