"""/v1/items: stores, returns, lists and removes items."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.faults import item_error, malformed, problem_members
from gateway_svc.http_call import HttpCall, answer_json, operation
from gateway_svc.json_message import by_size, parsed
from gateway_svc.openapi import (
    CONTENT,
    TEXT,
    Schema,
    closed_object,
    fields,
    json_answer,
    parameter,
    reference,
)
from gateway_svc.rest.content_json import content_of
from gateway_svc.rest.url_parameters import PAGE_PARAMETERS, page_of
from gateway_svc.upstream import method_named
from tandem.contract.filtering.attribute_wire import value_to_proto
from tandem.errors import ItemNotFound, RequestMalformed
from tandem.v1 import content_service_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue

_ITEM_FIELDS = {"item_id", "content", "attributes"}
_ITEM_ID = parameter("item_id", "path", TEXT | {"minLength": 1}, "the item")
_INDEX_ID = parameter("index_id", "query", TEXT, "the index") | {"required": True}
_REQUEST_ID = parameter("request_id", "query", TEXT, "an idempotency key")
_ITEM: Schema = closed_object(
    {"item_id": TEXT, "content": CONTENT, **fields(index_service_pb2.Item, "attributes")},
    ["item_id", "content"],
)
_BATCH: Schema = closed_object(
    {
        **fields(pb.IngestItemsRequest, "index_id", "request_id", "truncation_policy"),
        "items": {"type": "array", "items": _ITEM, "minItems": 1, "maxItems": 64},
    },
    ["index_id", "items"],
)
_STORED: Schema = {"type": "object", "required": ["results", "consistency_token"]}


@operation(method_named("IngestItems"), body=_BATCH, answer=_STORED)
async def put_items(call: HttpCall) -> Response:
    """Stores a batch.

    Returns each item's outcome; the status is 200 if all are stored, otherwise 207.
    """
    members = await call.members()
    items = members.pop("items", None)
    if not isinstance(items, list):
        raise malformed("items is not a list")
    request = await call.message(members, pb.IngestItemsRequest)
    await by_size(len(call.body), _add_items, request, items)
    stored = pb.IngestItemsResponse.FromString(await call.answer(request))
    results = [_result(each) for each in stored.results]
    has_failed = any("error" in each for each in results)
    return JSONResponse(
        {"results": results, "consistency_token": stored.consistency_token},
        HTTPStatus.MULTI_STATUS if has_failed else HTTPStatus.OK,
    )


put_items.description["responses"]["207"] = json_answer(_STORED)


@operation(
    method_named("FetchItems"),
    parameters=[_ITEM_ID, _INDEX_ID],
    answer=reference(index_service_pb2.Item),
)
async def get_item(call: HttpCall) -> Response:
    """Returns one item."""
    item_id, index_id = call.request.path_params["item_id"], call.query().get("index_id", "")
    answer = await call.answer(
        content_service_pb2.FetchItemsRequest(index_id=index_id, item_ids=[item_id])
    )
    found = content_service_pb2.FetchItemsResponse.FromString(answer)
    if not found.items:
        raise ItemNotFound(item_id=item_id)
    return await by_size(len(answer), answer_json, found.items[0])


@operation(
    method_named("ListItems"),
    parameters=[_INDEX_ID, *PAGE_PARAMETERS],
    answer=reference(content_service_pb2.ListItemsResponse),
)
async def list_items(call: HttpCall) -> Response:
    """Lists one page of ids."""
    query = call.query()
    return await call.answered(
        content_service_pb2.ListItemsRequest(index_id=query.get("index_id", ""), **page_of(query))
    )


@operation(
    method_named("RemoveItems"),
    parameters=[_ITEM_ID, _INDEX_ID, _REQUEST_ID],
    answer=reference(pb.RemoveItemsResponse),
)
async def delete_item(call: HttpCall) -> Response:
    """Removes one item; an unknown id is not an error."""
    query, item_ids = call.query(), [call.request.path_params["item_id"]]
    return await call.answered(
        pb.RemoveItemsRequest(
            index_id=query.get("index_id"),
            item_ids=item_ids,
            request_id=query.get("request_id"),
        )
    )


@operation(
    method_named("RemoveItems"),
    body=reference(pb.RemoveItemsRequest),
    answer=reference(pb.RemoveItemsResponse),
)
async def remove_items(call: HttpCall) -> Response:
    """Removes several items, and says how many existed."""
    return await call.answered(await call.message(await call.members(), pb.RemoveItemsRequest))


def _add_items(request: pb.IngestItemsRequest, items: list[Any]) -> None:
    request.items.extend(_item(each, f"items[{number}]") for number, each in enumerate(items))


def _item(value: Any, where: str) -> index_service_pb2.Item:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict) or not {"item_id", "content"} <= value.keys() <= _ITEM_FIELDS:
        raise malformed(f"{where} has not item_id, content and, if it has more, attributes")
    item_id = value["item_id"]
    if not isinstance(item_id, str):
        raise malformed(f"{where}.item_id is not text", "send a JSON string")
    return index_service_pb2.Item(
        item_id=item_id,
        content=content_of(value["content"], f"{where}.content"),
        attributes=_attributes(value.get("attributes"), where),
    )


def _attributes(value: Any, where: str) -> dict[str, AttributeValue]:  # noqa: ANN401 (JSON)
    if value is not None and not isinstance(value, dict):
        raise malformed(f"{where}.attributes is not an object")
    return {name: _attribute(each) for name, each in (value or {}).items()}


def _attribute(value: Any) -> AttributeValue:  # noqa: ANN401 (JSON)
    """Returns the message of a plain or typed value.

    It is empty for anything else, for which the orchestrator refuses this item alone.
    """
    try:
        return parsed(value, AttributeValue) if isinstance(value, dict) else value_to_proto(value)
    except (RequestMalformed, TypeError, ValueError):
        return AttributeValue()


def _result(result: pb.IngestResult) -> dict[str, Any]:
    members: dict[str, Any] = {"item_id": result.item_id}
    if result.HasField("error"):
        members["error"] = problem_members(item_error(result.error))
        del members["error"]["request_id"]
    return members
