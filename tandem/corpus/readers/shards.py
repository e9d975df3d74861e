"""Finds the files of a corpus that consists of many, and the split of each.

000.tar  001.tar                         split "all"
train-000.tar  train-00000-of-00002.tar  split "train"; a hash may follow the number
train/000.tar  default/train/0000.tar    split "train", whatever the file's name
data/train-000.tar                       split "train", as Hugging Face lays it out
dogs/000.tar                             split "dogs", if neither name is well known
split=train/part-00000-….tar             split "train", as Spark lays it out
part-00000-….tar                         split "all", as Spark does without a partition
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing, CorpusMalformed
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.plain_file import files_below, leads_out
from tandem.corpus.readers.splits import WHOLE_SPLIT, is_well_known

_NUMBERED = re.compile(r"(?:(?P<split>.+?)[-_.])?\d+(?:-of-\d+(?:-[0-9a-f]+)?)?")
# train-00000-of-00002
_PART = re.compile(r"(?P<name>.*?)-?(?P<number>\d+)-of-(?P<count>\d+)(?:-[0-9a-f]+)?")
# part-00000-a5835434-5909-4f72-a89e-2fc1d17efc62-c000.snappy, part-r-00000.gz
_OF_SPARK = re.compile(r"part-(?:[rm]-)?\d+(?:[-.].*)?")
_PARTITION = re.compile(r"(?P<column>[^=]+)=(?P<value>.*)")
# Folders that tools put around a corpus, without a meaning.
_AROUND: Final = frozenset({"data", "default", "plain_text"})
# What Hugging Face puts before the split of a truncated corpus.
_TRUNCATED: Final = "partial-"


@dataclass(frozen=True, slots=True)
class ShardFile:
    """Describes one file of a corpus."""

    path: Path
    name: str
    """The path from the corpus's folder without its suffix; unique in the corpus."""
    root: Path | None = None
    """The corpus's folder; None if a file was given."""

    @property
    def configuration(self) -> str:
        """Returns the folders above a well-known split: "de" of "de/train/0000.parquet"."""
        below = self.path.relative_to(self.root) if self.root else Path(self.path.name)
        folders = [
            each
            for each in below.parent.parts
            if each not in _AROUND and not _PARTITION.fullmatch(each)
        ]
        for number in reversed(range(len(folders))):
            if is_well_known(folders[number].removeprefix(_TRUNCATED)):
                return "/".join(folders[:number])
        return "/".join(folders) if is_well_known(_split_of(below.stem) or "") else ""

    @property
    def partitions(self) -> dict[str, str]:
        """Returns the columns that folder names encode, as Spark writes them: "language=de"."""
        folders = self.path.relative_to(self.root).parent.parts if self.root else ()
        matches = map(_PARTITION.fullmatch, folders)
        return {match["column"]: match["value"] for match in matches if match}


def shards_by_split(
    path: Path, suffixes: tuple[str, ...], left_out: LeftOut | None = None
) -> dict[str, list[ShardFile]]:
    """Returns each split's files by the order of their names.

    `path` is one file, or a folder with files at any depth. `left_out` counts everything else,
    including links out of the folder. Raises CorpusFileMissing if there is no such file, or the
    folder cannot be listed.
    """
    left_out = LeftOut() if left_out is None else left_out
    splits = defaultdict(list)
    if path.is_file():
        name = _stem(path.name, suffixes) or path.stem
        splits[_split_of(name) or WHOLE_SPLIT].append(ShardFile(path, name))
    elif path.is_dir():
        for file in sorted(files_below(path, path, left_out)):
            below = file.relative_to(path)
            if below.name.startswith("_"):
                continue  # Spark's own: _SUCCESS, _committed_…, _metadata
            stem = _stem(below.name, suffixes)
            if stem is None:
                left_out.pass_over(file)
            elif leads_out(file, path):
                left_out.pass_over(file, FileFault.LEADS_OUT)
            else:
                name = str(below.with_name(stem))
                of = below.with_name(stem + suffixes[0])
                splits[split_of(of)].append(ShardFile(file, name, path))
    if not splits:
        there = left_out.summary()
        raise CorpusFileMissing(
            f"no {' or '.join(suffixes)} file at {path}; give one, or the folder they lie in"
            + (f" ({there})" if there else "")
        )
    return dict(splits)


def _stem(name: str, suffixes: tuple[str, ...]) -> str | None:
    """Returns a name without the suffix that it has of these, if it has one."""
    ending = next((each for each in suffixes if name.lower().endswith(each)), None)
    return None if ending is None else name[: -len(ending)]


def check_one_configuration(shards: Iterable[ShardFile], split: str) -> None:
    """Raises CorpusMalformed if a split's files are of several corpora, side by side.

    A dataset of Hugging Face may have several configurations, each with the same splits in a folder
    of its own, for example one for each language, or the same pictures twice.
    """
    by_name = {shard.configuration: shard for shard in shards}
    if len(by_name) > 1:
        root = next(iter(by_name.values())).root
        named = ", ".join(sorted(name or "." for name in by_name))
        raise CorpusMalformed(
            f"{root} has split {split!r} in several configurations: {named}; give the folder of "
            "one, or move the files of one corpus into one folder"
        )


def report_missing_parts(shards: Iterable[ShardFile], left_out: LeftOut) -> None:
    """Reports parts that the names of a split's files imply and that are missing.

    "train-00000-of-00002" implies two. If a single file was given, nothing is reported.
    """
    numbers: defaultdict[tuple[Path, str, int], set[int]] = defaultdict(set)
    for shard in shards:
        part = _PART.fullmatch(shard.path.stem) if shard.root else None
        if part:
            whole = (shard.path.parent, part["name"], int(part["count"]))
            numbers[whole].add(int(part["number"]))
    for (folder, name, count), found in numbers.items():
        if len(found) < count:
            message = f"{folder / name}: {len(found):,} of {count:,} parts are there"
            left_out.pass_over(message, FileFault.PARTS_MISSING)


def split_of(below: Path) -> str:
    """Returns the split of a file by its path from the corpus's folder."""
    folders = [each for each in below.parent.parts if each not in _AROUND]
    for folder in reversed(folders):
        partition = _PARTITION.fullmatch(folder)
        if partition and partition["column"].lower() == "split":
            return partition["value"]
        name = folder.removeprefix(_TRUNCATED)
        if is_well_known(name):
            return name
    stem_split = _split_of(below.stem)
    if stem_split is not None and (is_well_known(stem_split) or not folders):
        return stem_split
    named = [folder for folder in folders if not _PARTITION.fullmatch(folder)]
    return named[0] if named else stem_split or WHOLE_SPLIT


def _split_of(stem: str) -> str | None:
    """Returns the split in a file's name; None if the name is only a number."""
    if _OF_SPARK.fullmatch(stem):
        return None
    match = _NUMBERED.fullmatch(stem)
    return match["split"] if match else stem
