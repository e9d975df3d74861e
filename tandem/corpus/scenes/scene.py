"""What a scene is: groups of counted drawings in a layout."""

from dataclasses import dataclass
from enum import Enum

from tandem.corpus.scenes.nouns import Noun


class Layout(Enum):
    """Where a scene's groups stand, in the order of its groups."""

    SINGLE = ("all",)
    SIDE_BY_SIDE = ("left", "right")
    STACKED = ("top", "bottom")
    TWO_ABOVE_ONE = ("top left", "top right", "bottom")
    TWO_BELOW_ONE = ("bottom left", "bottom right", "top")


@dataclass(frozen=True, slots=True)
class Group:
    """So many of one drawing."""

    noun: Noun
    style: str
    count: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows; `place_seed` settles where in its area each drawing stands."""

    layout: Layout
    groups: tuple[Group, ...]
    place_seed: int
