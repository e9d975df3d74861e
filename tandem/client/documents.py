"""Scores documents against a query: builds the request, and reads its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tandem.client.answer_names import ErrorReason
from tandem.client.arguments import checked_elements, checked_member
from tandem.client.item import NewContent
from tandem.client.query import StoredItem
from tandem.client.results import item_error, withheld
from tandem.client.sendable import content_to_proto
from tandem.contract.content import TruncationPolicy
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.inference_cost import InferenceCost, cost_from_proto
from tandem.contract.model_description import relevance
from tandem.errors import TandemError
from tandem.v1 import content_service_pb2

NewDocument: TypeAlias = NewContent | StoredItem
"""A text, an image, regions, or a stored item."""

_DOCUMENTS_REMEDY = "send a list of texts, images and StoredItems"


@dataclass(frozen=True, slots=True)
class DocumentScore:
    """How well one document matches the query; or why it has no score."""

    match_logit: float | None
    """The cross-encoder's logit; None if it did not score the document."""
    match_probability: float | None
    """0 to 1; None if it did not score the document, or was not calibrated."""
    similarity: float | None
    """The bi-encoder's cosine similarity, -1 to 1; None for a stored item."""
    error: TandemError | None = None

    @property
    def relevance(self) -> float | None:
        """The match on a scale of 0 to 1, or the similarity where the cross-encoder gave none.

        It is a probability only where `match_probability` is set.
        """
        if self.match_logit is None:
            return self.similarity
        return relevance(self.match_logit, self.match_probability)


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

    def best(self, count: int | None = None) -> list[tuple[int, DocumentScore]]:
        """Returns the places and scores of at most `count` documents, best first.

        Probabilities come before similarities, and both before errors. Raises ValueError for a
        negative count.
        """
        if count is not None and count < 0:
            raise ValueError(f"{count} documents cannot be kept; give 0 or more, or None for all")
        ranked = sorted(enumerate(self.scores), key=lambda each: _key(each[1]), reverse=True)
        return ranked[:count]


def score_request(
    query: NewContent,
    documents: Sequence[NewDocument],
    index_id: str,
    truncation_policy: TruncationPolicy | str,
) -> content_service_pb2.ScoreDocumentsRequest:
    """Returns the message; raises an error of a content or an id that cannot be sent."""
    policy = checked_member("truncation_policy", truncation_policy, TruncationPolicy)
    return content_service_pb2.ScoreDocumentsRequest(
        query=content_to_proto(query, "the query"),
        documents=map(_document, checked_elements("documents", documents, _DOCUMENTS_REMEDY)),
        index_id=check_index_id(index_id) if index_id else "",
        truncation_policy=f"TRUNCATION_POLICY_{policy.name}",
    )


def scored_documents(response: content_service_pb2.ScoreDocumentsResponse) -> ScoredDocuments:
    """Returns the answer of ScoreDocuments."""
    return ScoredDocuments(
        tuple(map(_score, response.scores)),
        response.model_fingerprint,
        response.reranker,
        cost_from_proto(response.cost),
        withheld(response.probability_withheld),
    )


def _document(document: NewDocument) -> content_service_pb2.Document:
    if isinstance(document, StoredItem):
        return content_service_pb2.Document(item_id=check_item_id(document.item_id))
    return content_service_pb2.Document(content=content_to_proto(document, "a document"))


def _key(score: DocumentScore) -> tuple[int, float]:
    if score.match_logit is not None:
        return (2, score.match_logit)
    return (1, score.similarity) if score.similarity is not None else (0, 0.0)


def _score(score: content_service_pb2.DocumentScore) -> DocumentScore:
    return DocumentScore(
        score.match_logit if score.HasField("match_logit") else None,
        score.match_probability if score.HasField("match_probability") else None,
        score.similarity if score.HasField("similarity") else None,
        item_error(score.error) if score.HasField("error") else None,
    )
