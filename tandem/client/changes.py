"""Reads what a caller gives of changes and selections of items, and joins the answers."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypedDict, TypeVar

from tandem.client.arguments import checked_elements, mistyped
from tandem.client.ingest.batches import MAX_PART_BYTES, attributes_bytes
from tandem.client.item import NewAttributes
from tandem.client.search_options import checked_where
from tandem.client.sendable import check_sendable, checked_request_id
from tandem.contract.filtering.attribute_wire import attributes_from_proto, attributes_to_proto
from tandem.contract.filtering.attributes import check_attributes
from tandem.contract.filtering.filters import Filter
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_PATCH_COUNT, parts_within
from tandem.contract.search.answer import Removal
from tandem.contract.search.item_changes import (
    Changes,
    ItemFailure,
    ItemPatch,
    ItemsChange,
    ItemSelection,
    Selecting,
)
from tandem.errors import TandemError

Asked = TypeVar("Asked", bound=Selecting)
NewPatch: TypeAlias = ItemPatch | tuple[str, NewAttributes]
"""A patch, or the item's id and attributes to set; None as a value removes one."""


class Selected(TypedDict, total=False):
    """Says which items of an index: those that fit all that is set."""

    where: str | Filter | None
    id_prefix: str
    id_glob: str


def item_selection(selected: Selected) -> ItemSelection:
    """Returns the selection; raises ItemIdInvalid, RequestMalformed and FilterInvalid.

    Raises TypeError for a name that it does not have: without it more would be selected.
    """
    if unknown := selected.keys() - Selected.__annotations__.keys():
        raise TypeError(f"a selection has no {min(unknown)!r}; it has where, id_prefix and id_glob")
    where = selected.get("where")
    return ItemSelection(
        check_sendable("id_prefix", selected.get("id_prefix", "")),
        check_sendable("id_glob", selected.get("id_glob", "")),
        None if where is None else checked_where("where", where),
    )


def checked_ids(item_ids: Iterable[str]) -> list[str]:
    """Returns the ids; raises ItemIdInvalid and RequestMalformed."""
    return list(map(check_item_id, checked_elements("item_ids", item_ids, "send a list of ids")))


def checked_patch(new: NewPatch) -> ItemPatch:
    """Returns the patch to send; raises RequestMalformed and AttributeInvalid."""
    patch = new
    if not isinstance(patch, ItemPatch):
        if not isinstance(new, tuple | list) or len(new) != 2:
            raise mistyped("a patch", new, "send an ItemPatch or (item_id, attributes)")
        patch = ItemPatch(*new)
    given = attributes_to_proto({n: v for n, v in dict(patch.attributes).items() if v is not None})
    attributes = attributes_from_proto(given)
    check_attributes(attributes)
    removed = [name for name in patch.attributes if name not in attributes]
    return replace(
        patch, attributes=attributes, removed_attributes=[*patch.removed_attributes, *removed]
    )


class PatchBatches:
    """Yields what is sent at a time, and keeps the failures of patches that cannot be sent."""

    def __init__(self, patches: Iterable[NewPatch], index_id: str, request_id: str) -> None:
        """Raises IndexIdInvalid, RequestIdInvalid and RequestMalformed."""
        remedy = "send a list or iterator of ItemPatch or (item_id, attributes)"
        self._patches = checked_elements("patches", patches, remedy)
        self._empty = ItemsChange(index_id=check_index_id(index_id), patches=())
        self._request_id = checked_request_id(request_id) or uuid.uuid4().hex
        self.failures: list[ItemFailure] = []

    def __iter__(self) -> Iterator[ItemsChange]:
        parts = parts_within(self._checked(), _size_bytes, MAX_PART_BYTES, MAX_PATCH_COUNT)
        for number, part in enumerate(parts):
            yield replace(self._empty, request_id=f"{self._request_id}/{number}", patches=part)

    def _checked(self) -> Iterator[ItemPatch]:
        for new in self._patches:
            try:
                patch = checked_patch(new)
                check_item_id(patch.item_id)
            except TandemError as error:
                given = getattr(new, "item_id", new[0] if new and isinstance(new, tuple) else "")
                self.failures.append(ItemFailure(str(given), error.kept()))
                continue
            yield patch


def _size_bytes(patch: ItemPatch) -> int:
    named = {**dict.fromkeys(patch.removed_attributes, ""), **patch.attributes}
    return len(patch.item_id) + len(patch.copied_from_item_id) + attributes_bytes(named)


def continued(asked: Asked, answer: Changes | Removal) -> Asked:
    """Returns the call for what an answer left of a selection."""
    return replace(
        asked, page_token=answer.next_page_token, consistency_token=answer.consistency_token
    )


def joined(changes: Changes, further: Changes) -> Changes:
    """Returns the outcome of both."""
    return replace(
        further,
        changed_count=changes.changed_count + further.changed_count,
        failures=(*changes.failures, *further.failures),
        item_ids=(changes.item_ids or further.item_ids),
    )
