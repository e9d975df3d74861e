"""POST /v1/rerank, /v2/rerank and /rerank, as clients of Cohere, Jina, vLLM, Infinity and TEI send.

A request with `texts` is TEI's, whose answer is the list of results alone.
"""

from difflib import get_close_matches
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.faults import item_error, malformed
from gateway_svc.http_call import HttpCall, flag, operation
from gateway_svc.json_message import by_size
from gateway_svc.openapi import CONTENT, TEXT, Schema, closed_object, fields
from gateway_svc.rest.content_json import content_of, text_of
from gateway_svc.upstream import method_named
from tandem.chassis.telemetry.request_id import current_request_id
from tandem.contract.content import LONG_TEXT_CHARACTERS
from tandem.contract.search.documents import SCORED_WIRE, ScoredDocuments
from tandem.errors import TextEmpty
from tandem.v1 import content_pb2
from tandem.v1 import content_service_pb2 as pb

_OWN = ("index_id", "truncation_policy")
_FLAGS = ("return_documents", "return_text", "raw_scores", "truncate")
_READ = {"query", "documents", "texts", "top_n", "truncation_direction", *_FLAGS, *_OWN}
# Members of the APIs that it resembles: only one model is served, and it reads what it can.
_PASSED_OVER = {
    *("model", "max_tokens_per_doc", "max_chunks_per_doc", "priority", "user"),
    *("truncate_prompt_tokens", "mm_processor_kwargs"),
}

_CROSS, _BI = "cross_encoder", "bi_encoder"
_DOCUMENT: Schema = {"anyOf": [CONTENT, closed_object({"item_id": TEXT}, ["item_id"])]}
_DOCUMENTS: Schema = {"type": "array", "items": _DOCUMENT, "minItems": 1, "maxItems": 200}
_RERANK: Schema = closed_object(
    {
        "model": TEXT,
        "query": CONTENT,
        "documents": _DOCUMENTS,
        "texts": _DOCUMENTS | {"description": "In place of documents; the answer is a list."},
        "top_n": {"type": ["integer", "null"], "minimum": 1},
        **{name: {"type": ["boolean", "null"]} for name in _FLAGS},
        **fields(pb.ScoreDocumentsRequest, *_OWN),
    },
    ["query"],
)
_RESULT: Schema = {
    "type": "object",
    "properties": {
        "index": {"type": "integer"},
        "relevance_score": {"type": "number"},
        "scored_by": {"enum": [_CROSS, _BI, None]},
        "match_logit": {"type": ["number", "null"]},
        "similarity": {"type": ["number", "null"]},
        "truncated": {"const": True},
    },
    "required": ["index", "relevance_score"],
}
_ANSWER: Schema = {
    "type": ["object", "array"],
    "properties": {"results": {"type": "array", "items": _RESULT}},
    "required": ["id", "model", "results", "usage"],
}


@operation(method_named("ScoreDocuments"), body=_RERANK, answer=_ANSWER)
async def rerank(call: HttpCall) -> Response:
    """Sorts documents by how well they match a query.

    Returns the best documents first, and those without words last; raises the first other error of
    a document.
    """
    given = await call.members()
    members = {name: each for name, each in given.items() if each is not None}
    if unknown := members.keys() - _READ - _PASSED_OVER:
        name = sorted(unknown)[0][:64]
        near = [f"send {each}" for each in get_close_matches(name, _READ, 1)]
        raise malformed(f"{name} is not a field of a rerank", *near)
    documents = _documents(members)
    top_n = _count(members, len(documents))
    is_shown = flag(members, "return_documents") or flag(members, "return_text")
    is_raw = flag(members, "raw_scores")
    options = {"truncation_policy": _policy(members), "index_id": members.get("index_id")}
    request = await call.message(options, pb.ScoreDocumentsRequest)
    await by_size(len(call.body), _add_pairs, request, members.get("query"), documents)
    answer = pb.ScoreDocumentsResponse.FromString(await call.answer(request))
    for number, each in enumerate(answer.scores):
        if each.HasField("error") and not isinstance(item_error(each.error), TextEmpty):
            raise item_error(each.error, f"documents[{number}]")
    scored = SCORED_WIRE.from_proto(answer)
    results = _results(scored, is_raw=is_raw)[:top_n]
    if is_shown:
        for result in results:
            result["document"] = _shown(documents[result["index"]])
    if "texts" in members:
        return JSONResponse([_rank(result) for result in results])
    token_count = scored.cost.token_count
    meta: dict[str, Any] = {"api_version": {"version": "1"}}
    if scored.query_text_use is not None and scored.query_text_use.is_truncated:
        meta["warnings"] = ["the query is longer than the model reads, and was cut"]
    return JSONResponse(
        {
            "id": current_request_id(),
            "model": scored.reranker or scored.model_fingerprint,
            "results": results,
            "usage": {"prompt_tokens": token_count, "total_tokens": token_count},
            "meta": {**meta, "tokens": {"input_tokens": token_count}},
        }
    )


def _documents(members: dict[str, Any]) -> list[Any]:
    name = "texts" if "texts" in members else "documents"
    documents = members.get(name)
    if isinstance(documents, dict):  # vLLM's list of parts
        documents = documents.get("content")
    if not isinstance(documents, list):
        raise malformed(f"{name} is not a list")
    if name == "texts" and "documents" in members:
        raise malformed("texts and documents are both set", "send one of them")
    return documents


def _policy(members: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    """Returns what to do with long texts: they are cut by default, as those APIs do."""
    if members.get("truncation_direction", "right") not in ("right", "Right"):
        raise malformed("truncation_direction is not right", "leave it out: texts lose their end")
    default = "TRUNCATE" if flag(members, "truncate", default=True) else "ERROR"
    return members.get("truncation_policy", f"TRUNCATION_POLICY_{default}")


def _count(members: dict[str, Any], document_count: int) -> int:
    count = members.get("top_n")
    if count is None:
        return document_count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise malformed("top_n is not a number of at least 1", "send one, or leave it out")
    return count


def _add_pairs(request: pb.ScoreDocumentsRequest, query: object, documents: list[Any]) -> None:
    request.query.CopyFrom(_content(query, "query"))
    is_cut = request.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE
    for number, each in enumerate(documents):
        document = _document(each, f"documents[{number}]")
        if is_cut and (text := document.content.text):
            document.content.text = text[:LONG_TEXT_CHARACTERS]
        request.documents.append(document)


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


def _results(scored: ScoredDocuments, *, is_raw: bool) -> list[dict[str, Any]]:
    """Returns the results, best first; raises Uncalibrated if texts and pictures have no order."""
    ranked = scored.best()
    if is_raw and len({each.match_logit is None for _, each in ranked if not each.error}) > 1:
        raise malformed("raw_scores of texts and pictures have no order", "leave it out")
    results: list[dict[str, Any]] = []
    for number, score in ranked:
        raw = score.similarity if score.match_logit is None else score.match_logit
        value = raw if is_raw else score.relevance
        if value is None:  # It has no words: below all, of which similarities may be negative.
            value = min([0.0, *(each["relevance_score"] for each in results[-1:])])
        result = {
            "index": number,
            "relevance_score": value,
            "scored_by": None if score.error else _BI if score.match_logit is None else _CROSS,
            "match_logit": score.match_logit,
            "similarity": score.similarity,
        }
        results.append(result | ({"truncated": True} if score.is_truncated else {}))
    return results


def _rank(result: dict[str, Any]) -> dict[str, Any]:
    """Returns a result in TEI's shape."""
    rank = {"index": result["index"], "score": result["relevance_score"]}
    if "document" in result:
        rank["text"] = result["document"].get("text")
    return rank | ({"truncated": True} if "truncated" in result else {})


def _shown(document: Any) -> Any:  # noqa: ANN401 (JSON)
    return {"text": document} if isinstance(document, str) else document
