"""Defines which stored items a call is about, and how they change without being encoded."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tandem.contract.content import Content
from tandem.contract.filtering.attribute_wire import CheckedFilter
from tandem.contract.filtering.attributes import Attributes, check_attributes
from tandem.contract.identifiers import check_item_id
from tandem.errors import RequestMalformed, TandemError

_WILDCARD = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class ItemSelection:
    """Says which items a call is about: those that fit all that is set."""

    id_prefix: str = ""
    id_glob: str = ""
    """`*` matches any characters, including `/`, and `?` matches one."""
    filter: CheckedFilter | None = None

    def __post_init__(self) -> None:
        """Raises ItemIdInvalid for what no id can begin with."""
        for each in filter(None, (self.id_prefix, self.id_glob)):
            check_item_id(each)

    @property
    def prefix(self) -> str:
        """With which each of their ids begins."""
        return max(self.id_prefix, _WILDCARD.split(self.id_glob)[0], key=len)

    def has_id(self, item_id: str) -> bool:
        """Returns whether the id fits; the filter is another matter."""
        fits = not self.id_glob or _pattern(self.id_glob).match(item_id) is not None
        return fits and item_id.startswith(self.id_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """What a write of an item selection says, apart from what it does."""

    index_id: str
    selection: ItemSelection | None = None
    """None for items by id."""
    request_id: str = ""
    dry_run: bool = False
    page_token: str = ""
    consistency_token: str = ""
    """Of earlier writes, which the outcome's covers too."""

    def __post_init__(self) -> None:
        """Raises RequestMalformed for an empty selection, which would be every item."""
        if self.selection == ItemSelection():
            raise RequestMalformed(
                why="the selection is empty", remedy='set id_glob to "*" for every item'
            )
        if self.selection is None and (self.dry_run or self.page_token):
            raise RequestMalformed(why="dry_run and page_token need a selection")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsRemoval(Selecting):
    """Asks for the removal of items."""

    item_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ItemPatch:
    """What to change of one item: its attributes, or the id under which a copy of it is."""

    item_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Those to set. In a call of a client, None as a value removes the attribute."""
    removed_attributes: Sequence[str] = ()
    attributes_replaced: bool = False
    """Whether all other attributes are removed too."""
    copied_from_item_id: str = ""
    """Another item, which is stored under `item_id` first, with its content and encoding."""

    def patched(self, old: Attributes) -> Attributes:
        """Returns the item's attributes after this; raises AttributeInvalid for too many."""
        kept = {} if self.attributes_replaced else dict(old)
        for name in self.removed_attributes:
            kept.pop(name, None)
        check_attributes(patched := {**kept, **self.attributes})
        return patched


def patched(patches: Iterable[ItemPatch], attributes: Attributes) -> Attributes:
    """Returns attributes after the patches of one item; raises AttributeInvalid."""
    for each in patches:
        attributes = each.patched(attributes)
    return attributes


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """An item that was not changed, and why."""

    item_id: str
    error: TandemError


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsChange(Selecting):
    """Asks for changes of items."""

    patches: Sequence[ItemPatch | ItemFailure]
    """A failure is in the place of a patch that cannot be read."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The outcome of changes."""

    changed_count: int = 0
    """Items that were changed or copied; with `dry_run`, that would be."""
    consistency_token: str = ""
    """Pass it to a search that must see them."""
    failures: Sequence[ItemFailure] = ()
    """The items that were not changed."""
    item_ids: Sequence[str] = ()
    """The first that were selected; empty for changes by id."""
    next_page_token: str = ""
    """Not empty if a part of the selection is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemListing:
    """Asks for a page of items without contents, in byte order of their ids."""

    index_id: str
    page_token: str = ""
    page_size: int | None = None
    """None for the usual size."""
    selection: ItemSelection | None = None
    """None for every item."""
    attributes_included: bool = False


@dataclass(frozen=True, slots=True)
class KeptItem:
    """An item as it is stored."""

    item_id: str
    content: Content | None = None
    """None in a listing."""
    attributes: Attributes = field(default_factory=dict)
    """Empty in a listing of ids."""


@lru_cache(64)
def _pattern(glob: str) -> re.Pattern[str]:
    # fnmatch's translation never tries exponentially many ways; brackets are those of names.
    return re.compile(fnmatch.translate(glob.replace("[", "[[]")))
