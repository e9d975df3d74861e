"""POST /v1/rerank, in the shape of Jina's and Cohere's."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.faults import item_error, malformed
from gateway_svc.http_call import HttpCall, flag, operation
from gateway_svc.json_message import by_size
from gateway_svc.openapi import CONTENT, TEXT, Schema, closed_object, fields
from gateway_svc.rest.content_json import content_of, text_of
from gateway_svc.upstream import method_named
from tandem.chassis.telemetry.request_id import current_request_id
from tandem.contract.model_description import relevance
from tandem.v1 import content_pb2
from tandem.v1 import content_service_pb2 as pb

_READ = {"query", "documents", "top_n", "return_documents", "index_id", "truncation_policy"}
# Members of the APIs that it resembles: only one model is served, and long texts are refused.
_PASSED_OVER = {"model", "max_tokens_per_doc", "max_chunks_per_doc", "priority", "user"}

_CROSS, _BI = "cross_encoder", "bi_encoder"
_DOCUMENT: Schema = {"anyOf": [CONTENT, closed_object({"item_id": TEXT}, ["item_id"])]}
_RERANK: Schema = closed_object(
    {
        "model": TEXT,
        "query": CONTENT,
        "documents": {"type": "array", "items": _DOCUMENT, "minItems": 1, "maxItems": 200},
        "top_n": {"type": "integer", "minimum": 1},
        "return_documents": {"type": "boolean"},
        **fields(pb.ScoreDocumentsRequest, "index_id", "truncation_policy"),
    },
    ["query", "documents"],
)
_RESULT: Schema = {
    "type": "object",
    "properties": {
        "index": {"type": "integer"},
        "relevance_score": {"type": "number"},
        "scored_by": {"enum": [_CROSS, _BI]},
        "match_logit": {"type": ["number", "null"]},
        "similarity": {"type": ["number", "null"]},
    },
    "required": ["index", "relevance_score"],
}
_ANSWER: Schema = {
    "type": "object",
    "properties": {"results": {"type": "array", "items": _RESULT}},
    "required": ["id", "model", "results", "usage"],
}


@operation(method_named("ScoreDocuments"), body=_RERANK, answer=_ANSWER)
async def rerank(call: HttpCall) -> Response:
    """Sorts documents by how well they match a query.

    Returns the best documents first; raises the first error of a document.
    """
    members = await call.members()
    if unknown := members.keys() - _READ - _PASSED_OVER:
        raise malformed(f"{sorted(unknown)[0][:64]} is not a field of a rerank")
    documents = members.get("documents")
    if not isinstance(documents, list):
        raise malformed("documents is not a list")
    top_n = _count(members, len(documents))
    is_returned = flag(members, "return_documents")
    options: dict[str, Any] = {
        name: members[name] for name in ("index_id", "truncation_policy") if name in members
    }
    request = await call.message(options, pb.ScoreDocumentsRequest)
    await by_size(len(call.body), _add_pairs, request, members.get("query"), documents)
    scored = pb.ScoreDocumentsResponse.FromString(await call.answer(request))
    results = [_result(number, score) for number, score in enumerate(scored.scores)]
    # What the cross-encoder scored first: the two scores are not comparable.
    results.sort(key=lambda each: (each["scored_by"] != _CROSS, -each["relevance_score"]))
    if is_returned:
        for each in results[:top_n]:
            each["document"] = _shown(documents[each["index"]])
    token_count = scored.cost.token_count
    return JSONResponse(
        {
            "id": current_request_id(),
            "model": scored.reranker or scored.model_fingerprint,
            "results": results[:top_n],
            "usage": {"total_tokens": token_count},
            "meta": {"api_version": {"version": "1"}, "tokens": {"input_tokens": token_count}},
        }
    )


def _count(members: dict[str, Any], document_count: int) -> int:
    count = members.get("top_n")
    if count is None:
        return document_count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise malformed("top_n is not a number of at least 1", "send one, or leave it out")
    return count


def _add_pairs(request: pb.ScoreDocumentsRequest, query: object, documents: list[Any]) -> None:
    request.query.CopyFrom(_content(query, "query"))
    for number, each in enumerate(documents):
        request.documents.append(_document(each, f"documents[{number}]"))


def _content(value: Any, where: str) -> content_pb2.Content:  # noqa: ANN401 (JSON)
    """Returns a content, which Cohere's second version has as a list of one part."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        parts = value["content"]
        if len(value) > 1 or len(parts) != 1:
            raise malformed(f"{where}.content has not one part", "send one text or one picture")
        return content_of(parts[0], f"{where}.content[0]")
    return content_of(value, where)


def _document(value: Any, where: str) -> pb.Document:  # noqa: ANN401 (JSON)
    if isinstance(value, dict) and set(value) == {"item_id"}:
        return pb.Document(item_id=text_of(value["item_id"], f"{where}.item_id"))
    return pb.Document(content=_content(value, where))


def _result(number: int, score: pb.DocumentScore) -> dict[str, Any]:
    if score.HasField("error"):
        raise item_error(score.error, f"documents[{number}]")
    has_match = score.HasField("match_logit")
    return {
        "index": number,
        "relevance_score": relevance(
            score.match_logit,
            score.match_probability if score.HasField("match_probability") else None,
        )
        if has_match
        else score.similarity,
        "scored_by": _CROSS if has_match else _BI,
        "match_logit": score.match_logit if has_match else None,
        "similarity": score.similarity if score.HasField("similarity") else None,
    }


def _shown(document: Any) -> Any:  # noqa: ANN401 (JSON)
    return {"text": document} if isinstance(document, str) else document
