"""Corpora by the names the command line takes."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, get_args

from tandem.corpus import emoji, scenes
from tandem.corpus.caption_list import read_caption_list
from tandem.corpus.karpathy import IMAGES_FOLDER, read_karpathy
from tandem.corpus.multi30k import read_multi30k
from tandem.corpus.picture_folder import read_picture_folder
from tandem.corpus.records import Record
from tandem.corpus.webdataset import read_webdataset

TRAIN_WITHOUT_RESTVAL: Final = "train_without_restval"
"""COCO's split "train" as its file has it; by "train" alone, restval is part of it."""

CORPUS_HELP: Final = (
    "scenes, emoji, FILE.json (Karpathy's layout, pictures in images/ beside it), folder:PATH, "
    "list:PATH, multi30k:PATH, webdataset:PATH or parquet:PATH"
)


def open_corpus(name: str, split: str, seed: int, count: int | None) -> Iterator[Record]:
    """Yields the records of a corpus, the first `count` if given.

    `name` is one of those in CORPUS_HELP; PATH may begin with ~. Of COCO in Karpathy's layout,
    "train" holds restval too, and TRAIN_WITHOUT_RESTVAL does not.

    Raises ValueError at the call for a name, a path or a split that is not there, listing those
    that are, and as the corpus's reader does.
    """
    if name == "scenes":
        if split not in get_args(scenes.Split):
            raise ValueError(f"no split {split!r} of scenes; there are {', '.join(scenes.SPLITS)}")
        return scenes.scene_records(split, seed, 2_000 if count is None else count)  # type: ignore[arg-type]
    if name == "emoji":
        return islice(emoji.emoji_records(split), count)  # type: ignore[arg-type]
    kind, _, path = name.partition(":")
    if kind in _READERS:
        if not path:
            raise ValueError(f"corpus {name!r} says no path; write {kind}:PATH")
        return islice(_READERS[kind](Path(path).expanduser(), split), count)
    if name.endswith(".json"):
        return islice(_karpathy(Path(name).expanduser(), split), count)
    raise ValueError(f"no corpus {name!r}; there are {CORPUS_HELP}")


def _karpathy(path: Path, split: str) -> Iterator[Record]:
    images = path.parent / IMAGES_FOLDER
    if split == TRAIN_WITHOUT_RESTVAL:
        return read_karpathy(path, images, "train", restval_in_train=False)
    return read_karpathy(path, images, split)


def _multi30k(path: Path, split: str) -> Iterator[Record]:
    return read_multi30k(path, path / IMAGES_FOLDER, split)


def _parquet(path: Path, split: str) -> Iterator[Record]:
    # Here: pyarrow is an extra, and takes a third of a second.
    from tandem.corpus.parquet import read_parquet

    return read_parquet(path, split)


_READERS: Final[Mapping[str, Callable[[Path, str], Iterator[Record]]]] = {
    "folder": read_picture_folder,
    "list": read_caption_list,
    "multi30k": _multi30k,
    "webdataset": read_webdataset,
    "parquet": _parquet,
}
