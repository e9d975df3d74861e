"""/v1/items: stores, returns, lists, changes and removes items."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response

from gateway_svc.faults import item_error, malformed, problem_members
from gateway_svc.http_call import HttpCall, answer_json, operation
from gateway_svc.json_message import by_size, check_unicode, parsed
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
from gateway_svc.rest.url_parameters import FLAG, PAGE_PARAMETERS, page_of, query_flag
from gateway_svc.upstream import method_named
from tandem.contract.filtering.attribute_wire import value_to_proto
from tandem.errors import ItemNotFound, RequestMalformed, TandemError
from tandem.v1 import content_service_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue

Read = Callable[[Any, str], Message]
Refused = dict[str, tuple[str, TandemError | None]]
"""The ids that were given, and the errors, by the ids that are sent instead."""

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
_SELECTION = [
    parameter(name, "query", TEXT, what)
    for name, what in (
        ("id_prefix", "the first characters of ids"),
        ("id_glob", "a pattern of ids; * matches any characters, ? one"),
        ("filter", "a filter, as a search takes it as text"),
    )
]
_DRY_RUN = parameter("dry_run", "query", FLAG, "only say what would be removed")
_WITH_ATTRIBUTES = parameter("attributes_included", "query", FLAG, "return attributes too")
_STORED: Schema = {"type": "object", "required": ["results", "consistency_token"]}


@operation(method_named("IngestItems"), body=_BATCH, answer=_STORED)
async def put_items(call: HttpCall) -> Response:
    """Stores a batch.

    Returns each item's outcome; the status is 200 if all are stored, otherwise 207.
    """
    members = await call.members("items")
    items = members.pop("items", None)
    if not isinstance(items, list):
        raise malformed("items is not a list")
    request = await call.message(members, pb.IngestItemsRequest)
    refused = await by_size(
        len(call.body), _add_each, call.body, request.items, items, _item, "items"
    )
    stored = pb.IngestItemsResponse.FromString(await call.answer(request))
    results = [_result(each, refused) for each in stored.results]
    has_failed = any("error" in each for each in results)
    return JSONResponse(
        {"results": results, "consistency_token": stored.consistency_token},
        HTTPStatus.MULTI_STATUS if has_failed else HTTPStatus.OK,
    )


@operation(
    method_named("ChangeItems"),
    body=reference(pb.ChangeItemsRequest),
    answer=reference(pb.ChangeItemsResponse),
)
async def patch_items(call: HttpCall) -> Response:
    """Changes attributes of items, or copies items, without their contents.

    null removes an attribute. The status is 200 if all are changed, otherwise 207.
    """
    members = _with_filter(await call.members("patches"))
    patches = members.pop("patches", None)
    if not isinstance(patches, list):
        raise malformed("patches is not a list")
    request = await call.message(members, pb.ChangeItemsRequest)
    refused = await by_size(
        len(call.body), _add_each, call.body, request.patches, patches, _patch, "patches"
    )
    changed = pb.ChangeItemsResponse.FromString(await call.answer(request))
    return JSONResponse(
        {
            "changed_count": changed.changed_count,
            "failures": [_result(each, refused) for each in changed.failures],
            "consistency_token": changed.consistency_token,
            "item_ids": list(changed.item_ids),
            "next_page_token": changed.next_page_token,
        },
        HTTPStatus.MULTI_STATUS if changed.failures else HTTPStatus.OK,
    )


for each, schema in ((put_items, _STORED), (patch_items, reference(pb.ChangeItemsResponse))):
    each.description["responses"]["207"] = json_answer(schema)


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
    parameters=[_INDEX_ID, *_SELECTION, _WITH_ATTRIBUTES, *PAGE_PARAMETERS],
    answer=reference(content_service_pb2.ListItemsResponse),
)
async def list_items(call: HttpCall) -> Response:
    """Lists one page of ids, of all items or of a selection."""
    query = call.query()
    return await call.answered(
        content_service_pb2.ListItemsRequest(
            index_id=query.get("index_id", ""),
            selection=_selection(query),
            attributes_included=query_flag(query, "attributes_included"),
            **page_of(query),
        )
    )


@operation(
    method_named("RemoveItems"),
    parameters=[_INDEX_ID, *_SELECTION, _DRY_RUN, PAGE_PARAMETERS[1]],
    answer=reference(pb.RemoveItemsResponse),
)
async def delete_items(call: HttpCall) -> Response:
    """Removes the items of a selection, or a part of a large one."""
    query = call.query()
    return await call.answered(
        pb.RemoveItemsRequest(
            index_id=query.get("index_id", ""),
            selection=_selection(query) or index_service_pb2.ItemSelection(),
            dry_run=query_flag(query, "dry_run"),
            page_token=query.get("page_token"),
        )
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
    members = _with_filter(await call.members())
    return await call.answered(await call.message(members, pb.RemoveItemsRequest))


def _selection(query: Mapping[str, str]) -> index_service_pb2.ItemSelection | None:
    """Returns what a URL selects; None for every item."""
    selection = index_service_pb2.ItemSelection(
        id_prefix=query.get("id_prefix"),
        id_glob=query.get("id_glob"),
        filter_text=query.get("filter"),
    )
    return selection if selection.ByteSize() else None


def _with_filter(members: dict[str, Any]) -> dict[str, Any]:
    """Returns the members; a filter of the selection may be text, as in a search."""
    selection = members.get("selection")
    if isinstance(selection, dict) and isinstance(selection.get("filter"), str):
        selection["filter_text"] = selection.pop("filter")
    return members


def _add_each(body: bytes, messages: Any, values: list[Any], read: Read, name: str) -> Refused:  # noqa: ANN401
    """Adds the message of each value; one that is refused keeps its place, under a made id."""
    refused: Refused = {}
    has_escapes = b"\\u" in body  # Without one there is no lone surrogate to look for.
    for number, value in enumerate(values):
        try:
            if has_escapes:
                check_unicode(value)
            messages.append(read(value, f"{name}[{number}]"))
        except RequestMalformed as error:
            given = value.get("item_id") if isinstance(value, dict) else None
            made = f"\0{number}"  # which no item has
            shown = given.encode(errors="replace").decode() if isinstance(given, str) else ""
            refused[made] = shown, error
            messages.add(item_id=made)
    return refused


def _patch(value: Any, where: str) -> index_service_pb2.ItemPatch:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict):
        raise malformed(f"{where} is not an object")
    attributes = _as_object(value.get("attributes"), where)
    patch = parsed(
        {name: each for name, each in value.items() if name != "attributes"},
        index_service_pb2.ItemPatch,
    )
    patch.removed_attributes.extend(name for name, each in attributes.items() if each is None)
    given = {name: _attribute(each) for name, each in attributes.items() if each is not None}
    patch.MergeFrom(index_service_pb2.ItemPatch(attributes=given))
    return patch


def _item(value: Any, where: str) -> index_service_pb2.Item:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict) or not {"item_id", "content"} <= value.keys() <= _ITEM_FIELDS:
        raise malformed(f"{where} has not item_id, content and, if it has more, attributes")
    item_id = value["item_id"]
    if not isinstance(item_id, str):
        raise malformed(f"{where}.item_id is not text", "send a JSON string")
    return index_service_pb2.Item(
        item_id=item_id,
        content=content_of(value["content"], f"{where}.content"),
        attributes={
            name: _attribute(each)
            for name, each in _as_object(value.get("attributes"), where).items()
        },
    )


def _as_object(value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    if value is not None and not isinstance(value, dict):
        raise malformed(f"{where}.attributes is not an object")
    return value or {}


def _attribute(value: Any) -> AttributeValue:  # noqa: ANN401 (JSON)
    """Returns the message of a plain or typed value.

    It is empty for anything else, for which the orchestrator refuses this item alone.
    """
    try:
        return parsed(value, AttributeValue) if isinstance(value, dict) else value_to_proto(value)
    except (RequestMalformed, TypeError, ValueError):
        return AttributeValue()


def _result(result: pb.IngestResult | pb.ItemFailure, refused: Refused) -> dict[str, Any]:
    error = item_error(result.error) if result.HasField("error") else None
    item_id, error = refused.get(result.item_id, (result.item_id, error))
    members: dict[str, Any] = {"item_id": item_id}
    if error is not None:
        members["error"] = problem_members(error)
        del members["error"]["request_id"]
    return members
