"""Opens corpora by their names on the command line."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from tandem.cli.options import user_path
from tandem.contract.filtering.attributes import name_fault
from tandem.corpus import emoji
from tandem.corpus.errors import SplitUnknown
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readable_records import OnError
from tandem.corpus.readers.caption_list import read_caption_list
from tandem.corpus.readers.hub_dataset import read_dataset
from tandem.corpus.readers.karpathy import IMAGES_FOLDER, read_karpathy
from tandem.corpus.readers.multi30k import read_multi30k
from tandem.corpus.readers.picture_folder import is_picture, read_picture_folder
from tandem.corpus.readers.plain_file import files_below, list_folder
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.table import PARQUET, ROLES, TABLES, read_table
from tandem.corpus.readers.webdataset import read_webdataset
from tandem.corpus.scenes import records as scenes

TRAIN_WITHOUT_RESTVAL: Final = "train_without_restval"
"""COCO's split "train" without restval, which "train" includes."""

CORPUS_HELP: Final = (
    "scenes, emoji, a folder of pictures, a table (.csv, .jsonl or .parquet), FILE.json "
    "(Karpathy's layout, pictures in images/ next to it), folder:PATH, list:PATH, multi30k:PATH, "
    "webdataset:PATH, table:PATH, parquet:PATH or "
    "datasets:NAME"
)

_MAX_INDEX_LENGTH = 63
ON_ERROR = Annotated[
    OnError,
    typer.Option(help="what to do with an unreadable record: stop, or skip it and count it"),
]

COLUMN = Annotated[
    list[str] | None,
    "ROLE=COLUMN of a table, where ROLE is id, image, text, split or language, or the name of the "
    "attribute that the column is; may repeat",
]
EXCLUDE = Annotated[
    list[str] | None,
    "glob of files and folders to leave out, by name or, with a slash, by path; may repeat",
]


def open_corpus(
    name: str,
    split: str,
    seed: int,
    count: int | None,
    left_out: LeftOut | None = None,
    columns: Mapping[str, str] | None = None,
) -> RecordStream:
    """Returns the records of a corpus, the first `count` if given.

    `name` is one of those in CORPUS_HELP; PATH may begin with ~. `columns` are those of a table,
    as read_table takes them. For COCO in Karpathy's layout, "train" includes restval, and
    TRAIN_WITHOUT_RESTVAL does not. `left_out` counts the files that a reader skips, and the records
    that it refuses if it continues.

    Raises ValueError at once for a missing name, path or split, and lists the available ones; also
    raises the reader's errors.
    """
    left_out = LeftOut() if left_out is None else left_out
    if name == "scenes":
        if split not in get_args(scenes.Split):
            raise ValueError(f"no split {split!r} of scenes; there are {', '.join(scenes.SPLITS)}")
        total = 2_000 if count is None else count
        made = scenes.scene_records(split, seed, total)  # type: ignore[arg-type]
        return RecordStream(made, name, left_out, total).limited(count)
    if name == "emoji":
        return RecordStream(emoji.emoji_records(split), name, left_out).limited(count)  # type: ignore[arg-type]
    kind, _, path = f"table:{name}".partition(":") if _is_table(name) else name.partition(":")
    if columns and kind not in _OF_TABLES:
        raise ValueError(f"{name} is no table, of which --column names columns")
    if kind in _READERS:
        if not path:
            raise ValueError(f"corpus {name!r} says no path; write {kind}:PATH")
        read = _READERS[kind]
        if kind in _OF_TABLES:
            read = partial(read, columns=columns)
        return read(user_path(path), split, left_out=left_out).limited(count)
    given = user_path(name)
    if name and _is(given, Path.is_dir):
        _check_pictures_alone(given)
        return read_picture_folder(given, split, left_out=left_out).limited(count)
    if name.endswith(".json"):
        return _karpathy(given, split, left_out).limited(count)
    raise ValueError(f"no corpus {name!r}; {_what_to_write(given)}there are {CORPUS_HELP}")


def is_table_corpus(name: str) -> bool:
    """Returns whether a corpus is one of tables."""
    return corpus_place(name)[0] in _OF_TABLES


def columns_of(asked: Sequence[str] | None) -> dict[str, str]:
    """Returns columns by role; raises ValueError for what is not written ROLE=COLUMN."""
    columns: dict[str, str] = {}
    for each in asked or ():
        role, equals, column = each.partition("=")
        if not equals or (role not in ROLES and (fault := name_fault(role))):
            raise ValueError(f"--column {each}: {fault if equals else 'write ROLE=COLUMN'}")
        columns[role] = column
    return columns


def open_divided(
    name: str,
    splits: tuple[str, str],
    seed: int,
    counts: tuple[int | None, int | None],
    left_out: LeftOut,
    *,
    otherwise: str = "",
) -> tuple[RecordStream, RecordStream]:
    """Returns two splits, for training and for measurement, each as open_corpus does.

    Raises ValueError also for a corpus with only one split: measuring on training data would make
    every figure too good. The message ends with what to do `otherwise`.
    """
    otherwise = otherwise and f", {otherwise}"
    both = " and ".join(splits)
    try:
        first, second = (
            open_corpus(name, split, seed, count, left_out)
            for split, count in zip(splits, counts, strict=True)
        )
    except SplitUnknown as error:
        raise ValueError(
            f"{error.place} has no split {error.split!r}, and {both} are read; its splits are: "
            f"{', '.join(error.known) or 'none'}; divide it into both, by what its layout has for "
            f"that: folders, or names of files{otherwise}"
            f"{error.left_out and f' ({error.left_out})'}"
        ) from error
    if first.is_undivided:
        raise ValueError(
            f"{name} is not divided, and {both} are read: put the pictures to learn from into its "
            f"subfolder {splits[0]}, and others, to measure on, into {splits[1]}{otherwise}"
        )
    return first, second


def corpus_place(name: str) -> tuple[str, Path]:
    """Returns the reader of a corpus, and its path."""
    kind, _, path = name.partition(":")
    if kind in _READERS and path:
        return kind, user_path(path).resolve()
    given = user_path(name)
    if _is_table(name):
        return "table", given.resolve()
    return "folder" if name and _is(given, Path.is_dir) else "", given.resolve()


def index_of(corpus: str) -> str:
    """Returns the index that a corpus is stored in by default.

    That is its name for scenes and emoji; for a path, the name of the table or of the folder, in
    the letters that an index id may have, and "pictures" if none is left.
    """
    if corpus in ("scenes", "emoji"):
        return corpus
    kind, path = corpus_place(corpus)
    name = path.name if path.is_dir() else path.parent.name
    if kind in ("table", "datasets") and not path.is_dir():
        name = path.name.partition(".")[0]
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9_]+", "-", letters)[:_MAX_INDEX_LENGTH].strip("-_") or "pictures"


def _is_table(name: str) -> bool:
    """Returns whether a table's file is meant, without a word for its layout."""
    is_named = name.lower().endswith(TABLES) and not name.lower().endswith(".tsv")
    return is_named and _is(user_path(name), Path.is_file)


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # The name is not valid for a file.
        return False


def _check_pictures_alone(folder: Path) -> None:
    """Raises ValueError if a folder looks like another layout, in which images have captions.

    Reading it as plain images would silently ignore the captions.
    """
    own, folders = list_folder(folder)
    splits = [file.name for file in own if file.suffix.lower() == ".json"]
    if splits and IMAGES_FOLDER in {child.name for child in folders}:
        raise ValueError(
            f"{folder} has {splits[0]} and {IMAGES_FOLDER}/: write {folder / splits[0]} for "
            f"Karpathy's layout, or folder:{folder} for the pictures alone"
        )
    if any(file.suffix.lower() == ".tsv" for file in own):
        raise ValueError(
            f"{folder} has .tsv files: write list:{folder} where they are lists of captions, or "
            f"folder:{folder} for the pictures alone"
        )
    others: set[str] = set()
    for file in files_below(folder, folder, LeftOut()):
        if is_picture(file):
            return
        others.add(file.suffix.lower())
    for suffix in _KINDS.keys() & others:
        raise ValueError(f"{folder} has {suffix} files: write {_KINDS[suffix]}:{folder}")


def _what_to_write(path: Path) -> str:
    """Returns how to write an existing path, for a message, or nothing."""
    if not _is(path, Path.is_file):
        return "" if _is(path, Path.exists) else "there is no such folder or file either; "
    if is_picture(path):
        return f"it is one picture: give the folder that it lies in, {path.parent}; "
    kind = _KINDS.get(path.suffix.lower())
    if kind == "list":
        return f"write table:{path}, or list:{path} for captions without names of columns; "
    return f"write {kind}:{path}; " if kind else ""


def _karpathy(path: Path, split: str, left_out: LeftOut) -> RecordStream:
    read = partial(read_karpathy, path, path.parent / IMAGES_FOLDER, left_out=left_out)
    if split == TRAIN_WITHOUT_RESTVAL:
        return read("train", restval_in_train=False)
    return read(split)


def _multi30k(path: Path, split: str, left_out: LeftOut) -> RecordStream:
    return read_multi30k(path, path / IMAGES_FOLDER, split, left_out=left_out)


_READERS: Final[Mapping[str, Callable[..., RecordStream]]] = {
    "folder": read_picture_folder,
    "list": read_caption_list,
    "multi30k": _multi30k,
    "webdataset": read_webdataset,
    "table": read_table,
    "parquet": partial(read_table, suffixes=PARQUET),
    "datasets": read_dataset,
}
_KINDS: Final = {
    ".tar": "webdataset",
    ".parquet": "parquet",
    ".tsv": "list",
    ".csv": "table",
    ".jsonl": "table",
}
_OF_TABLES: Final = ("table", "parquet", "datasets")
