"""Says which text an item has."""

from collections.abc import Collection
from dataclasses import dataclass

from tandem.contract.content import Modality
from tandem.contract.filtering.attributes import Attributes


@dataclass(frozen=True, slots=True)
class ItemText:
    """Holds the text by which an item is found."""

    item_id: str
    modality: Modality
    text: str
    """Empty for an item that words never find."""


def item_text(content_text: str, attributes: Attributes, names: Collection[str]) -> str:
    """Returns the content of a text and the named attributes that are texts, a line each.

    A picture has no `content_text`, so it is found by its attributes alone.
    """
    lines = [content_text] if content_text else []
    for name in names:
        match attributes.get(name):
            case str() as text:
                lines.append(text)
            case tuple() as texts:
                lines.extend(texts)
    return "\n".join(lines)
