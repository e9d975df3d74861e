"""Matches the requested split with those of a corpus."""

from collections.abc import Collection
from typing import Final

from tandem.corpus.errors import SplitUnknown
from tandem.corpus.left_out import FileFault, LeftOut

WHOLE_SPLIT: Final = "all"
"""The split of a corpus that has none."""
EVERY_SPLIT: Final = "*"
"""Stands for the whole corpus, divided or not, where a reader can give it."""
_ONE_NAME: Final = (
    frozenset({"train", "training"}),
    frozenset({"val", "validation", "valid", "dev"}),
    frozenset({"test", "testing"}),
)
_WELL_KNOWN: Final = frozenset().union(*_ONE_NAME)


def is_well_known(name: str) -> bool:
    """Returns whether a name is that of a common split, in any case."""
    return name.lower() in _WELL_KNOWN


def split_named(
    requested: str, known: Collection[str], place: object, left_out: LeftOut | None = None
) -> str:
    """Returns the split of `known` that `requested` means: itself, or a synonym ("dev" for "val").

    If a corpus has both, the synonym is a split of its own, and `left_out` counts it. Raises
    SplitUnknown if none matches, or several do.
    """
    words = next((each for each in _ONE_NAME if requested.lower() in each), {requested.lower()})
    meant = [name for name in known if name.lower() in words]
    if requested in known:
        for other in meant:
            if other != requested and left_out is not None:
                left_out.pass_over(f"{place}: {other}", FileFault.OTHER_SPLIT)
        return requested
    if len(meant) != 1:
        summary = "" if left_out is None else left_out.summary()
        raise SplitUnknown(place=place, split=requested, known=known, left_out=summary)
    return meant[0]
