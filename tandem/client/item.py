"""Defines what can be stored: an item with its content and attributes."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from tandem.client.arguments import mistyped
from tandem.contract.regions import RegionContent
from tandem.errors import RequestMalformed

NewContent: TypeAlias = str | bytes | RegionContent
"""A text, the bytes of a JPEG, PNG or WebP file, or a detector's regions of an image."""

NewAttributes: TypeAlias = Mapping[str, Any]
"""Attributes by name, also as tables have them: NumPy's numbers; dates, stored as ISO 8601."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item to store, with one of text, image and regions."""

    item_id: str
    """1 to 256 bytes of UTF-8, unique in its index; a stored item of this id is replaced."""
    _: KW_ONLY
    text: str | None = None
    """At most 8,192 bytes; 131,072 if it may be truncated."""
    image: bytes | None = None
    """The bytes of a JPEG, PNG or WebP file, at most 32 MiB."""
    regions: RegionContent | None = None
    """A detector's regions of an image, for models that read them."""
    attributes: NewAttributes = field(default_factory=dict)
    """For filters, by name: texts, numbers, booleans, lists of texts; at most 64."""

    def __post_init__(self) -> None:
        """Raises ValueError for two contents. An item without one is refused when it is sent."""
        if sum(each is not None for each in (self.text, self.image, self.regions)) > 1:
            raise ValueError(
                f"item {self.item_id!a} has several contents; give it text, image or regions, and "
                "store the others under ids of their own"
            )

    @property
    def content(self) -> NewContent | None:
        """The text, the image or the regions; None without any."""
        if self.text is not None:
            return self.text
        return self.image if self.image is not None else self.regions


NewItem: TypeAlias = Item | tuple[str, NewContent] | tuple[str, NewContent, NewAttributes]
"""An Item, or its id and content and optionally its attributes."""


def item_id_of(item: NewItem) -> str:
    """Returns the id as the caller gave it; empty for a value that is not an item."""
    try:
        return item_parts(item)[0]
    except RequestMalformed:
        return ""


def item_parts(item: NewItem) -> tuple[str, NewContent | None, NewAttributes]:
    """Returns id, content and attributes as the caller gave them, unchecked.

    Raises RequestMalformed for anything other than an Item or a tuple of two or three.
    """
    remedy = "send an Item, (item_id, content) or (item_id, content, attributes)"
    if isinstance(item, Item):
        return item.item_id, item.content, item.attributes
    if not isinstance(item, tuple | list):
        raise mistyped("an item", item, remedy)
    if len(item) not in (2, 3):
        raise RequestMalformed(why=f"an item has {len(item):,} parts", remedy=remedy)
    return item[0], item[1], (item[2] or {}) if len(item) == 3 else {}
