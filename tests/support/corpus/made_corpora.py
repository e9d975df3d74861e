"""What a corpus on disk may hold, drawn by hypothesis, for the tests of each layout."""

import string
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from tandem.corpus.records import Record

# Lines may hold anything except a line's end, including U+2028 and U+0085, at which str.splitlines
# splits; a file's byte order mark is not part of its first line, and no text contains NUL.
captions = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\n\r\N{ZERO WIDTH NO-BREAK SPACE}"),
    min_size=1,
    max_size=30,
).filter(lambda text: bool(text.strip()))
_letters = string.ascii_letters + string.digits + "_- äéčß"
names = st.text(_letters, min_size=1, max_size=12).filter(lambda name: name == name.strip())
pixels = st.binary(max_size=40)


@dataclass(frozen=True)
class Made:
    """A picture and what is said of it, before any layout."""

    name: str
    captions: tuple[str, ...]
    pixels: bytes


def made(min_captions: int = 0, max_captions: int = 5) -> st.SearchStrategy[list[Made]]:
    """Returns lists of 1 to 6 pictures whose names differ, whatever their case."""
    one = st.builds(
        Made,
        names,
        st.lists(captions, min_size=min_captions, max_size=max_captions).map(tuple),
        pixels,
    )
    return st.lists(one, min_size=1, max_size=6, unique_by=lambda each: each.name.casefold())


@contextmanager
def a_folder() -> Iterator[Path]:
    """Gives each example a folder of its own, which pytest's tmp_path does not."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def as_made(record: Record, name: str) -> Made:
    """Returns what a record holds, under the name it was made with."""
    return Made(name, tuple(each.text for each in record.captions), record.image.read())
