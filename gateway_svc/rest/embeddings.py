"""POST /v1/embeddings, in OpenAI's shape; an input may be a picture."""

import base64
import json
import struct
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway_svc.faults import HttpRefusal, item_error, malformed, problem
from gateway_svc.http_call import HttpCall, operation
from gateway_svc.json_message import by_size
from gateway_svc.openapi import CONTENT, TEXT, Schema, closed_object, fields
from gateway_svc.rest.content_json import content_of
from gateway_svc.upstream import method_named
from tandem.contract.limits import MAX_CONTENT_COUNT
from tandem.errors import TandemError
from tandem.v1 import content_pb2
from tandem.v1 import content_service_pb2 as pb

_MOST_INPUTS = 2_048
_FORMATS = ("float", "base64")
_READ = {"input", "messages", "encoding_format", "dimensions", "truncation_policy"}
# Members without effect: only one model is served, and tokens identify users.
_PASSED_OVER = {"model", "user"}

_INPUTS: Schema = {"type": "array", "items": CONTENT, "minItems": 1, "maxItems": _MOST_INPUTS}
_REQUEST: Schema = closed_object(
    {
        "model": TEXT,
        "input": {"anyOf": [CONTENT, _INPUTS]},
        "encoding_format": {"enum": list(_FORMATS)},
        "dimensions": {"type": "integer"},
        "user": TEXT,
        **fields(pb.EmbedContentsRequest, "truncation_policy"),
    },
    ["input"],
)
_ANSWER: Schema = {
    "type": "object",
    "properties": {"data": {"type": "array", "items": {"type": "object"}}},
    "required": ["object", "data", "model", "usage"],
}


def _refusal(error: TandemError | HttpRefusal, _: Request) -> Response:
    """Returns the problem, which also has the member that OpenAI's clients read."""
    response = problem(error)
    members = json.loads(bytes(response.body))
    kind = "server_error" if members["status"] >= 500 else "invalid_request_error"
    members["error"] = {"message": members["detail"], "type": kind, "code": members["reason"]}
    response.body = json.dumps(members).encode()
    response.headers["content-length"] = str(len(response.body))
    return response


@operation(
    method_named("EmbedContents"),
    body=_REQUEST,
    answer=_ANSWER,
    refuse=_refusal,
)
async def embeddings(call: HttpCall) -> Response:
    """Embeds texts and pictures.

    Returns the embeddings in the inputs' order; raises the first error of an input.
    """
    members = await call.members()
    if unknown := members.keys() - _READ - _PASSED_OVER:
        raise malformed(f"{sorted(unknown)[0][:64]} is not a field of an embedding")
    format_name = _format_name(members.get("encoding_format"))
    contents = await by_size(len(call.body), _contents, members)
    options = {"truncation_policy": members.get("truncation_policy")}
    request = await call.message(options, pb.EmbedContentsRequest)
    vectors: list[bytes] = []
    token_count, fingerprint = 0, ""
    for start in range(0, len(contents), MAX_CONTENT_COUNT):
        del request.contents[:]
        request.contents.extend(contents[start : start + MAX_CONTENT_COUNT])
        made = pb.EmbedContentsResponse.FromString(await call.answer(request))
        for number, each in enumerate(made.results, start):
            if each.HasField("error"):
                raise item_error(each.error, f"input[{number}]")
            vectors.append(each.embedding.values)
            token_count += each.text_use.used_token_count
        fingerprint = made.model_fingerprint
    _check_dimensions(members.get("dimensions"), vectors)
    return JSONResponse(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": number, "embedding": _shown(each, format_name)}
                for number, each in enumerate(vectors)
            ],
            "model": fingerprint,
            "usage": {"prompt_tokens": token_count, "total_tokens": token_count},
        }
    )


def _format_name(requested: Any) -> str:  # noqa: ANN401 (JSON)
    if requested is None:
        return "float"
    if requested not in _FORMATS:
        raise malformed(f"encoding_format is none of {', '.join(_FORMATS)}", "send one of them")
    return str(requested)


def _contents(members: dict[str, Any]) -> list[content_pb2.Content]:
    if members.get("messages") is not None:
        if members.get("input") is not None:
            raise malformed("input and messages are both set", "send one of them")
        return [_of_messages(members["messages"])]
    if (value := members.get("input")) is None:
        raise malformed("input is missing", "send a text, a picture or a list of them")
    inputs = value if isinstance(value, list) else [value]
    if not 1 <= len(inputs) <= _MOST_INPUTS:
        raise malformed(f"input has {len(inputs):,} elements", f"send 1 to {_MOST_INPUTS:,}")
    if isinstance(inputs[0], int | list):
        raise malformed("input has token ids", "send texts")
    return [content_of(each, f"input[{number}]") for number, each in enumerate(inputs)]


def _of_messages(messages: Any) -> content_pb2.Content:  # noqa: ANN401 (JSON)
    """Returns the content of a chat with one part, as vLLM's clients send pictures."""
    message = _only(messages)
    parts = message.get("content") if isinstance(message, dict) else None
    part = parts if isinstance(parts, str) else _only(parts)
    if part is None:
        raise malformed("messages is not one message with one part", "send one text or one picture")
    return content_of(part, "messages[0].content[0]")


def _only(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Returns the only element of a list; None for anything else."""
    return value[0] if isinstance(value, list) and len(value) == 1 else None


def _check_dimensions(requested: Any, embeddings: list[bytes]) -> None:  # noqa: ANN401 (JSON)
    dimension = len(embeddings[0]) // 4
    if requested is not None and requested != dimension:
        raise malformed(f"dimensions is not {dimension}, the model's", "leave it out")


def _shown(values: bytes, format_name: str) -> str | list[float]:
    if format_name == "base64":
        return base64.b64encode(values).decode()
    return list(struct.unpack(f"<{len(values) // 4}f", values))
