"""/v1/items: stores, returns, lists and removes items."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.http_call import HttpCall, query_parameters
from gateway_svc.json_message import by_size, parsed
from gateway_svc.malformed import malformed
from gateway_svc.methods import content_method, search_method
from gateway_svc.openapi.schemas import (
    Schema,
    Schemas,
    closed_object,
    json_answer,
    json_body,
    parameter,
)
from gateway_svc.problem import problem_members
from gateway_svc.rest.content_json import content_of
from gateway_svc.rest.item_error import item_error
from gateway_svc.rest.json_endpoint import JsonEndpoint, answer_json
from gateway_svc.rest.url_parameters import PAGE_PARAMETERS, page_of
from gateway_svc.upstream import Upstream
from tandem.contract.attribute_wire import value_to_proto
from tandem.errors import ItemNotFound, RequestMalformed
from tandem.v1 import content_service_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue

_ITEM_FIELDS = {"item_id", "content", "attributes"}
_TEXT: Schema = {"type": "string"}
_ITEM_ID = parameter("item_id", "path", _TEXT | {"minLength": 1}, "the item")
_INDEX_ID = parameter("index_id", "query", _TEXT, "the index") | {"required": True}


class PutItems(JsonEndpoint):
    """Stores a batch: PUT /v1/items."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("IngestItems"), upstream, "put_items")

    async def serve(self, call: HttpCall) -> Response:
        """Returns each item's outcome; the status is 200 if all are stored, otherwise 207."""
        members = await self.members(call)
        items = members.pop("items", None)
        if not isinstance(items, list):
            raise malformed("items is not a list")
        request = await self.message(call, members, pb.IngestItemsRequest)
        sent = await by_size(len(call.body), _with_items, request, items)
        answer = await self.upstream.answer(self.method, sent, call.context)
        stored = pb.IngestItemsResponse.FromString(answer)
        results = [_result(each) for each in stored.results]
        has_failed = any("error" in each for each in results)
        return JSONResponse(
            {"results": results, "consistency_token": stored.consistency_token},
            HTTPStatus.MULTI_STATUS if has_failed else HTTPStatus.OK,
        )

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the batch and its outcomes."""
        item = closed_object(
            {
                "item_id": {"type": "string"},
                "content": schemas.content(),
                "attributes": schemas.members(index_service_pb2.Item)["attributes"],
            },
            ["item_id", "content"],
        )
        members = schemas.only(pb.IngestItemsRequest, "index_id", "request_id", "truncation_policy")
        members["items"] = {"type": "array", "items": item, "minItems": 1, "maxItems": 64}
        answer = json_answer({"type": "object", "required": ["results", "consistency_token"]})
        return {
            "requestBody": json_body(closed_object(members, ["index_id", "items"])),
            "responses": {"200": answer, "207": answer},
        }


class GetItem(JsonEndpoint):
    """Returns one item: GET /v1/items/{item_id} with index_id."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(content_method("FetchItems"), upstream, "get_item")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the item; raises ItemNotFound."""
        item_id = call.request.path_params["item_id"]
        query = query_parameters(call, "index_id")
        request = content_service_pb2.FetchItemsRequest(
            index_id=query.get("index_id", ""),
            item_ids=[item_id],
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        found = content_service_pb2.FetchItemsResponse.FromString(answer)
        if not found.items:
            raise ItemNotFound(item_id=item_id)
        return await by_size(len(answer), answer_json, found.items[0])

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the item."""
        return {
            "parameters": [_ITEM_ID, _INDEX_ID],
            "responses": {"200": json_answer(schemas.of(index_service_pb2.Item))},
        }


class ListItems(JsonEndpoint):
    """Lists ids: GET /v1/items with index_id, page_size and page_token."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(content_method("ListItems"), upstream, "list_items")

    async def serve(self, call: HttpCall) -> Response:
        """Returns one page of ids."""
        query = query_parameters(call, "index_id", "page_size", "page_token")
        request = content_service_pb2.ListItemsRequest(
            index_id=query.get("index_id", ""), **page_of(query)
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(content_service_pb2.ListItemsResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes a page."""
        return {
            "parameters": [_INDEX_ID, *PAGE_PARAMETERS],
            "responses": {"200": json_answer(schemas.of(content_service_pb2.ListItemsResponse))},
        }


class DeleteItem(JsonEndpoint):
    """Removes one item: DELETE /v1/items/{item_id} with index_id."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("RemoveItems"), upstream, "delete_item")

    async def serve(self, call: HttpCall) -> Response:
        """Returns whether it existed; an unknown id is not an error."""
        query = query_parameters(call, "index_id", "request_id")
        request = pb.RemoveItemsRequest(
            index_id=query.get("index_id", ""),
            item_ids=[call.request.path_params["item_id"]],
            request_id=query.get("request_id", ""),
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(pb.RemoveItemsResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the removal."""
        request_id = parameter("request_id", "query", {"type": "string"}, "an idempotency key")
        return {
            "parameters": [_ITEM_ID, _INDEX_ID, request_id],
            "responses": {"200": json_answer(schemas.of(pb.RemoveItemsResponse))},
        }


class RemoveItems(JsonEndpoint):
    """Removes several items: POST /v1/items:remove."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("RemoveItems"), upstream, "remove_items")

    async def serve(self, call: HttpCall) -> Response:
        """Returns how many existed."""
        members = await self.members(call)
        request = await self.message(call, members, pb.RemoveItemsRequest)
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(pb.RemoveItemsResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the removal."""
        return {
            "requestBody": json_body(schemas.of(pb.RemoveItemsRequest)),
            "responses": {"200": json_answer(schemas.of(pb.RemoveItemsResponse))},
        }


def _with_items(request: pb.IngestItemsRequest, items: list[Any]) -> bytes:
    for number, item in enumerate(items):
        request.items.append(_item(item, f"items[{number}]"))
    return request.SerializeToString()


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
