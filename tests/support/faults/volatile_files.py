"""Models files on a disk with a write cache: what is written is lost until it is synced.

Each file has what its readers see, what is on the disk, and the writes in between. Names behave as
in a journaling file system: changes reach the disk in order, at the latest when their folder is
synced.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

SECTOR_BYTES = 512


class Loss(StrEnum):
    """Says what a power cut does to unsynced writes."""

    DROP = "drop"
    """All are lost."""
    SUBSET = "subset"
    """Each is wholly kept or wholly lost, by chance: disks reorder."""
    TORN = "torn"
    """Each sector of each is kept or lost, by chance."""


@dataclass(frozen=True, slots=True)
class Write:
    """Describes bytes written at an offset."""

    offset: int
    content: bytes

    def sectors(self) -> Iterator["Write"]:
        """Yields the write cut at the disk's sectors."""
        start = 0
        while start < len(self.content):
            end = start + SECTOR_BYTES - (self.offset + start) % SECTOR_BYTES
            yield Write(self.offset + start, self.content[start:end])
            start = end

    def apply(self, content: bytearray) -> None:
        """Changes the content as the write does."""
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.content)] = self.content


@dataclass(frozen=True, slots=True)
class Resize:
    """Describes a file being truncated or padded with zeros."""

    size: int

    def sectors(self) -> Iterator["Resize"]:
        """Yields itself: a length is never half written."""
        yield self

    def apply(self, content: bytearray) -> None:
        """Changes the content as the resize does."""
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))


@dataclass(slots=True, eq=False)
class File:
    """Holds a file as readers see it, as it is on disk, and the changes in between."""

    number: int
    mode: int
    seen: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Resize] = field(default_factory=list)

    def change(self, change: Write | Resize) -> None:
        """Makes a change that readers see at once, but the disk does not have."""
        change.apply(self.seen)
        self.unsynced.append(change)

    def sync(self) -> None:
        """Writes all changes to the disk."""
        for change in self.unsynced:
            change.apply(self.synced)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """Drops the changes as Linux does: readers still see them, but the disk never will."""
        self.unsynced.clear()

    def lose(self, loss: Loss, rng: random.Random) -> None:
        """Leaves what is on the disk after a power cut."""
        for change in self.unsynced:
            if loss is Loss.SUBSET and rng.random() < 0.5:
                change.apply(self.synced)
            elif loss is Loss.TORN:
                for part in change.sectors():
                    if rng.random() < 0.5:
                        part.apply(self.synced)
        self.unsynced.clear()
        self.seen = bytearray(self.synced)


@dataclass(slots=True, eq=False)
class Folder:
    """Holds a folder's names as readers see them and as they are on disk."""

    number: int
    mode: int
    seen: dict[str, "Node"] = field(default_factory=dict)
    synced: dict[str, "Node"] = field(default_factory=dict)


Node = File | Folder
# What a name in a folder will refer to; None where it is gone.
Naming = tuple[Folder, str, Node | None]


class VolatileFiles:
    """Holds a tree of files. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        """Starts with an empty root folder."""
        self._numbers = itertools.count(2)
        self.root = Folder(1, 0o755)
        self.nodes: dict[int, Node] = {1: self.root}
        self._journal: list[list[Naming]] = []

    def make_file(self, folder: Folder, name: str, mode: int) -> File:
        """Returns a new empty file under the name."""
        file = File(next(self._numbers), mode)
        self.nodes[file.number] = file
        self.rename([(folder, name, file)])
        return file

    def make_folder(self, folder: Folder, name: str, mode: int) -> Folder:
        """Returns a new empty folder under the name."""
        made = Folder(next(self._numbers), mode)
        self.nodes[made.number] = made
        self.rename([(folder, name, made)])
        return made

    def rename(self, namings: list[Naming]) -> None:
        """Renames, which a power cut undoes as a whole or not at all."""
        for folder, name, node in namings:
            _give(folder.seen, name, node)
        self._journal.append(namings)

    def sync_folder(self, folder: Folder) -> None:
        """Writes the folder's names, and all earlier name changes, to the disk."""
        last = max(
            (
                number
                for number, namings in enumerate(self._journal, 1)
                if any(changed is folder for changed, _, _ in namings)
            ),
            default=0,
        )
        self._write_journal(last)

    def used_bytes(self) -> int:
        """Returns the size of all files as readers see them."""
        return _size(self.root)

    def lose(self, loss: Loss, rng: random.Random) -> None:
        """Leaves what is on the disk after a power cut."""
        kept_count = 0 if loss is Loss.DROP else rng.randint(0, len(self._journal))
        self._write_journal(kept_count)
        self._journal.clear()
        for node in self.nodes.values():
            if isinstance(node, File):
                node.lose(loss, rng)
            else:
                node.seen = dict(node.synced)

    def _write_journal(self, count: int) -> None:
        for namings in self._journal[:count]:
            for folder, name, node in namings:
                _give(folder.synced, name, node)
        del self._journal[:count]


def _size(folder: Folder) -> int:
    return sum(
        len(node.seen) if isinstance(node, File) else _size(node) for node in folder.seen.values()
    )


def _give(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
