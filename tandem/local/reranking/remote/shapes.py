"""Builds the requests of each API as JSON values, and reads the scores in their answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tandem.contract.content import Modality
from tandem.local.reranking.remote.endpoint import RemoteShape

JsonObject = dict[str, Any]
# JSON may hold integers of thousands of digits.
_SHOWN_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Document:
    """Holds a text, or a picture as a data URI."""

    text: str = ""
    picture_uri: str = ""

    @property
    def modality(self) -> Modality:
        """Returns whether it is a text or a picture."""
        return Modality.IMAGE if self.picture_uri else Modality.TEXT


class AnswerInvalid(ValueError):
    """An answer is not of its API's shape; the message completes "it answered"."""


def request_body(
    shape: RemoteShape, model: str, query: Document, documents: Sequence[Document]
) -> JsonObject:
    """Returns the request; all documents are of one kind, texts or pictures."""
    return {"model": model} | _BODIES[shape](query, documents)


def read_scores(shape: RemoteShape, answer: object, count: int) -> list[float]:
    """Returns the scores in the order of the documents; raises AnswerInvalid.

    Places come from each result's index: an API may sort its results, and most do.
    """
    list_name, score_name = _ANSWERS[shape]
    results = answer.get(list_name) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise AnswerInvalid(f"without a list {list_name!r}")
    if len(results) != count:
        raise AnswerInvalid(f"{len(results)} results for {count} documents")
    scores: dict[int, float] = {}
    for result in results:
        index, score = _indexed_score(result, score_name)
        if not 0 <= index < count or index in scores:
            shown = str(index)[:_SHOWN_DIGITS]
            raise AnswerInvalid(f"index {shown} twice or out of range, of {count} documents")
        scores[index] = score
    return [scores[index] for index in range(count)]


def _indexed_score(result: object, score_name: str) -> tuple[int, float]:
    fields = result if isinstance(result, dict) else {}
    index, score = fields.get("index"), fields.get(score_name)
    if type(index) is not int:
        raise AnswerInvalid("a result without an integer index")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise AnswerInvalid(f"a result without a number {score_name!r}")
    try:
        return index, float(score)
    except OverflowError as error:
        raise AnswerInvalid(f"a score of {len(str(abs(score)))} digits") from error


def _rerank(query: Document, documents: Sequence[Document]) -> JsonObject:
    return {
        "query": _part_or_text(query),
        "documents": _parts_or_texts(documents),
        "top_n": len(documents),
    }


def _score(query: Document, documents: Sequence[Document]) -> JsonObject:
    return {"text_1": _part_or_text(query), "text_2": _parts_or_texts(documents)}


def _jina(query: Document, documents: Sequence[Document]) -> JsonObject:
    return {
        "query": {"image": query.picture_uri} if query.picture_uri else query.text,
        "documents": [
            {"image": each.picture_uri} if each.picture_uri else {"text": each.text}
            for each in documents
        ],
        "top_n": len(documents),
        "return_documents": False,
    }


def _part_or_text(document: Document) -> str | JsonObject:
    if not document.picture_uri:
        return document.text
    return {"content": [_part(document)]}


def _parts_or_texts(documents: Sequence[Document]) -> list[str] | JsonObject:
    # Each part of this one object is a document, in every version that reads pictures. Only later
    # ones take a list of objects as well.
    if documents[0].picture_uri:
        return {"content": [_part(each) for each in documents]}
    return [each.text for each in documents]


def _part(document: Document) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": document.picture_uri}}


_BODIES: Final[Mapping[RemoteShape, Callable[[Document, Sequence[Document]], JsonObject]]] = {
    RemoteShape.VLLM_RERANK: _rerank,
    RemoteShape.VLLM_SCORE: _score,
    RemoteShape.JINA: _jina,
}
# The list of results, and the name of a result's score.
_ANSWERS: Final[Mapping[RemoteShape, tuple[str, str]]] = {
    RemoteShape.VLLM_RERANK: ("results", "relevance_score"),
    RemoteShape.VLLM_SCORE: ("data", "score"),
    RemoteShape.JINA: ("results", "relevance_score"),
}
