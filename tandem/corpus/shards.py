"""Corpora that are spread over files of one kind: which file is of which split.

000.tar  001.tar                         split "all"
train-000.tar  train-00000-of-00002.tar  split "train"; a hash may stand behind the number
train/000.tar                            split "train", whatever the file's name
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.plain_file import list_folder

WHOLE_SPLIT: Final = "all"
"""Of files whose names are numbers alone."""

_NUMBERED = re.compile(r"(?:(?P<split>.+?)[-_.])?\d+(?:-of-\d+(?:-[0-9a-f]+)?)?")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a corpus."""

    path: Path
    name: str
    """The path from the corpus's folder without its suffix, unlike every other's."""


def shards_by_split(path: Path, suffix: str) -> dict[str, list[ShardFile]]:
    """Returns each split's files by the order of their names.

    `path` is one file, or a folder of files and of folders with files. Raises CorpusFileMissing
    where there is none, or a folder cannot be listed.
    """
    splits = defaultdict(list)
    if path.is_file():
        splits[_split_of(path.stem)].append(ShardFile(path, path.stem))
    elif path.is_dir():
        files, folders = list_folder(path)
        for file in _of_kind(files, suffix):
            splits[_split_of(file.stem)].append(ShardFile(file, file.stem))
        for folder in folders:
            # One that cannot be listed is not passed over: a parquet file in it may have rows of
            # any split.
            for file in _of_kind(list_folder(folder)[0], suffix):
                splits[folder.name].append(ShardFile(file, f"{folder.name}/{file.stem}"))
    if not splits:
        raise CorpusFileMissing(f"no {suffix} file at {path}; give one, or the folder they lie in")
    return dict(splits)


def _of_kind(files: list[Path], suffix: str) -> list[Path]:
    return sorted(path for path in files if path.suffix == suffix)


def _split_of(stem: str) -> str:
    match = _NUMBERED.fullmatch(stem)
    return (match["split"] or WHOLE_SPLIT) if match else stem
