"""Corpora by the names the command line takes."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import get_args

from tandem.corpus import emoji, scenes
from tandem.corpus.karpathy import read_karpathy
from tandem.corpus.records import Record


def open_corpus(name: str, split: str, seed: int, count: int | None) -> Iterator[Record]:
    """Yields the records of a corpus, the first `count` if given.

    `name` is scenes, emoji, or the path of a Karpathy JSON file whose pictures lie beside it in
    `images/`. Raises ValueError for a name or a split that is not there.
    """
    if name == "scenes":
        if split not in get_args(scenes.Split):
            raise ValueError(f"no split {split!r} of scenes; there are {', '.join(scenes.SPLITS)}")
        return scenes.scene_records(split, seed, 2_000 if count is None else count)  # type: ignore[arg-type]
    if name == "emoji":
        return islice(emoji.emoji_records(split), count)  # type: ignore[arg-type]
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"no corpus {name!r}: it is neither scenes, emoji nor a JSON file")
    return islice(read_karpathy(path, path.parent / "images", split), count)
