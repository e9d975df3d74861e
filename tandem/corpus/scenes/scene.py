"""Defines a scene: groups of counted drawings in a layout."""

from dataclasses import dataclass
from enum import Enum

from tandem.corpus.scenes.nouns import Noun


class Layout(Enum):
    """Lists the areas of a scene's groups, in their order."""

    SINGLE = ("all",)
    SIDE_BY_SIDE = ("left", "right")
    STACKED = ("top", "bottom")
    TWO_ABOVE_ONE = ("top left", "top right", "bottom")
    TWO_BELOW_ONE = ("bottom left", "bottom right", "top")


@dataclass(frozen=True, slots=True)
class Group:
    """Describes a number of equal drawings."""

    noun: Noun
    style: str
    count: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Describes what a picture shows; `place_seed` determines the positions within each area."""

    layout: Layout
    groups: tuple[Group, ...]
    place_seed: int
