"""Lists the ids of an index."""

from collections.abc import Iterator

from tandem.client.calls.refusal import calling
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.errors import IndexNotFound
from tandem.v1.content_service_pb2 import ListItemsRequest
from tandem.v1.content_service_pb2_grpc import ContentServiceStub


def listed_ids(address: str, index_id: str) -> Iterator[str]:
    """Yields the ids of an index's items in byte order; none if there is no such index."""
    request = ListItemsRequest(index_id=index_id, page_size=MAX_PAGE_SIZE)
    with calling(address, ContentServiceStub) as call:
        while True:
            try:
                page = call("ListItems", request)
            except IndexNotFound:
                return
            yield from page.item_ids
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return
