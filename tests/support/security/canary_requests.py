"""Calls that carry secrets, right and wrong ones: whatever a service may want to complain of."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import grpc
from google.protobuf.message import Message

from tandem.v1 import (
    attribute_pb2,
    content_pb2,
    encoder_service_pb2,
    index_service_pb2,
    search_service_pb2,
)
from tests.support.chassis.contract import contract_methods
from tests.support.pictures.pictures import encoded, noise
from tests.support.security.secured_stack import INDEX_ID

METHODS = contract_methods()
SEARCH = "/tandem.v1.SearchService/SearchItems"


@dataclass(frozen=True, slots=True)
class Sent:
    """One call: where to, what, and what comes with it."""

    service: str
    path: str
    body: bytes
    metadata: tuple[tuple[str, str], ...]
    timeout_seconds: float = 10.0


class CanaryRequests:
    """Makes calls with a token, and a text or a picture in each, that must not appear."""

    def __init__(self, token: str, text: str, request_id: str) -> None:
        self.text = text
        self.image = encoded(noise(97, 48), "PNG")
        self.damaged_image = self.image[: len(self.image) // 2]
        self.bad_token = f"bad-{token}"
        self._token = token
        self._request_id = request_id
        self._chance = random.Random(7)

    def take(self, count: int) -> list[Sent]:
        """Returns that many, of every kind in turn."""
        kinds = [
            *(self._searches, self._long_text, self._damaged_picture, self._stranger),
            *(self._malformed, self._other_requests, self._ingest, self._behind),
        ]
        made: list[Sent] = []
        for kind in islice(cycle(kinds), 10 * count):
            made += kind()
            if len(made) >= count:
                break
        return made[:count]

    def _searches(self) -> list[Sent]:
        """Right ones, of which one has no time."""
        text = content_pb2.Content(text=f"{self.text} {self._chance.randrange(5)}")
        plain = search_service_pb2.SearchItemsRequest(
            query=text, index_id=INDEX_ID, content_included=True, explained=True
        )
        picture = search_service_pb2.SearchItemsRequest(
            query=content_pb2.Content(image=self.image), index_id=INDEX_ID
        )
        stream = search_service_pb2.StreamSearchItemsRequest(search=plain)
        batch = search_service_pb2.BatchSearchItemsRequest(searches=[plain, picture])
        return [
            self._sent("SearchService/SearchItems", plain),
            self._sent("SearchService/SearchItems", picture),
            self._sent("SearchService/StreamSearchItems", stream),
            self._sent("SearchService/BatchSearchItems", batch),
            self._sent("SearchService/SearchItems", plain, timeout_seconds=0.001),
        ]

    def _long_text(self) -> list[Sent]:
        request = search_service_pb2.SearchItemsRequest(
            query=content_pb2.Content(text=f"{self.text} " * 4_000), index_id=INDEX_ID
        )
        return [self._sent("SearchService/SearchItems", request)]

    def _damaged_picture(self) -> list[Sent]:
        request = search_service_pb2.SearchItemsRequest(
            query=content_pb2.Content(image=self.damaged_image), index_id=INDEX_ID
        )
        return [self._sent("SearchService/SearchItems", request)]

    def _stranger(self) -> list[Sent]:
        request = search_service_pb2.SearchItemsRequest(
            query=content_pb2.Content(text=self.text), index_id=INDEX_ID
        )
        sent = self._sent("SearchService/SearchItems", request)
        headers = [f"Bearer {self.bad_token}", self.bad_token, f"Basic {self._token}"]
        return [
            Sent(sent.service, sent.path, sent.body, (("authorization", header),))
            for header in headers
        ]

    def _malformed(self) -> list[Sent]:
        """Bytes that are not a message, text that is not UTF-8, both with the text in them."""
        raw = self.text.encode()
        field = bytes((0x0A, len(raw) + 3)) + b"\x0a" + bytes((len(raw) + 1,)) + raw + b"\xff"
        sent = self._sent("SearchService/SearchItems", search_service_pb2.SearchItemsRequest())
        return [
            Sent(sent.service, sent.path, body, sent.metadata)
            for body in (field, field[:-8], raw, self.image)
        ]

    def _other_requests(self) -> list[Sent]:
        """What is refused for its filter, its cursor, its tokens or its numbers."""
        value = attribute_pb2.AttributeValue(text=self.text)
        query = content_pb2.Content(text=self.text)
        base = search_service_pb2.SearchItemsRequest(query=query, index_id=INDEX_ID)
        wrong = [
            {"retrieve_k": 5_000},
            {"index_id": "nowhere"},
            {"consistency_tokens": [self.text]},
            {
                "filter": attribute_pb2.Filter(
                    prefix=attribute_pb2.Prefix(name="", prefix=self.text)
                )
            },
            {
                "filter": attribute_pb2.Filter(
                    equals=attribute_pb2.Equality(name="size", value=value)
                )
            },
        ]
        made = []
        for fields in wrong:
            request = search_service_pb2.SearchItemsRequest(**fields)  # type: ignore[arg-type]
            merged = search_service_pb2.SearchItemsRequest()
            merged.CopyFrom(base)
            merged.MergeFrom(request)
            made.append(self._sent("SearchService/SearchItems", merged))
        cursor = search_service_pb2.SearchItemsRequest(cursor=self.text.encode(), index_id=INDEX_ID)
        return [*made, self._sent("SearchService/SearchItems", cursor)]

    def _ingest(self) -> list[Sent]:
        """Items that are stored, and items of the same request that are refused."""
        request = search_service_pb2.IngestItemsRequest(index_id=INDEX_ID)
        contents = [
            content_pb2.Content(text=self.text),
            content_pb2.Content(image=self.image),
            content_pb2.Content(image=self.damaged_image),
            content_pb2.Content(text=f"{self.text} " * 4_000),
        ]
        for number, content in enumerate(contents):
            item = request.items.add(item_id=f"canary-{number}", content=content)
            item.attributes["note"].text = self.text
        request.items[3].attributes["bad name"].text = self.text
        return [self._sent("SearchService/IngestItems", request)]

    def _behind(self) -> list[Sent]:
        """What the orchestrator would ask, and what it would never."""
        contents = [content_pb2.Content(text=self.text), content_pb2.Content(image=self.image)]
        encode = encoder_service_pb2.EncodeContentsRequest(contents=contents)
        get = index_service_pb2.GetItemsRequest(index_id=INDEX_ID, item_ids=["canary-0"])
        upsert = index_service_pb2.UpsertItemsRequest(
            index_id=INDEX_ID, model_fingerprint="another"
        )
        upsert.items.add(item_id="canary-9", content=contents[0])
        return [
            self._sent("EncoderService/EncodeContents", encode, service="encoder"),
            self._sent("IndexService/GetItems", get, service="index-0"),
            self._sent("IndexService/UpsertItems", upsert, service="index-0"),
        ]

    def _sent(
        self,
        method: str,
        request: Message,
        *,
        service: str = "orchestrator",
        timeout_seconds: float = 10.0,
    ) -> Sent:
        trace_id = f"{self._chance.getrandbits(128) | 1:032x}"
        metadata = (
            ("authorization", f"Bearer {self._token}"),
            ("x-request-id", self._request_id),
            ("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),
        )
        body = request.SerializeToString()
        return Sent(service, f"/tandem.v1.{method}", body, metadata, timeout_seconds)


async def send(channel: grpc.aio.Channel, sent: Sent) -> grpc.aio.AioRpcError | None:
    """Makes the call, reads it to its end, and returns how it was refused, if it was."""
    method = METHODS[sent.path]
    sides = (
        ("stream" if method.client_streaming else "unary"),
        ("stream" if method.server_streaming else "unary"),
    )
    call: Callable[..., grpc.aio.Call] = getattr(channel, "_".join(sides))(sent.path)
    body = _one(sent.body) if method.client_streaming else sent.body
    running = call(body, metadata=sent.metadata, timeout=sent.timeout_seconds)
    try:
        if method.server_streaming:
            async for _ in running:
                pass
        else:
            await running
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


def kinds(sent: Sequence[Sent]) -> set[str]:
    """Returns the methods that are called."""
    return {each.path for each in sent}
