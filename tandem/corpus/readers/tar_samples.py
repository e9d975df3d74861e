"""Groups an archive's files into records by name.

WebDataset ends a name at its first dot: of 0001.jpg, 0001.txt and 0001.mask.png, the first two are
record 0001 and the third is an extra. But names like 22.05.png and 22.05.txt exist too. So all
files with one name up to the first dot are examined together and paired by what is there.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.image_sources import PICTURE_SUFFIXES
from tandem.corpus.readers.tar_members import TarMember

PICTURE: Final = "picture"
TEXT, JSON = ".txt file", ".json file"
_KINDS: Final = dict.fromkeys(PICTURE_SUFFIXES, PICTURE) | {".txt": TEXT, ".json": JSON}

Sample = Mapping[str, TarMember]
"""A record's files by their kind."""
Name = tuple[int, str]
"""A record's name: number of the archive in the file (0 if only one has it), and name within it."""


@dataclass(frozen=True, slots=True)
class _Member:
    """Describes a file that may belong to a record."""

    member: TarMember
    kind: str
    stem: str
    """Its path without the last extension."""
    key: str
    """Its path up to the first dot of its name."""


def tar_samples(
    members: Iterator[TarMember], archive: Path, left_out: LeftOut
) -> dict[Name, Sample]:
    """Returns the files of each record, by its name, in the order of their first files.

    Concatenated archives may split pictures and captions between them, or each number records from
    the same start: if two have a file of one kind and name, these are two records. Rejects
    ambiguous pairings, and two files of one kind and name in one archive. `left_out` counts files
    that belong to no record.
    """
    groups: dict[str, list[_Member]] = defaultdict(list)
    for member in members:
        known = _known(member, archive, left_out)
        if known:
            groups[known.key].append(known)
    samples: dict[Name, Sample] = {}
    order: dict[Name, int] = {}
    for whole_group in groups.values():
        for part, group in _by_part(whole_group):
            try:
                paired = _paired(group, archive, left_out)
            except CorpusMalformed as error:
                left_out.refuse(error)
                continue
            for name, files in paired.items():
                samples[part, name] = files
                order[part, name] = min(each.offset_bytes for each in files.values())
    return {name: samples[name] for name in sorted(samples, key=order.__getitem__)}


def _by_part(group: list[_Member]) -> list[tuple[int, list[_Member]]]:
    """Returns the group whole, or divided by archive if two archives have the same file."""
    parts: dict[int, list[_Member]] = defaultdict(list)
    owners: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in group:
        parts[each.member.part].append(each)
        owners[each.stem, each.kind].add(each.member.part)
    if all(len(numbers) == 1 for numbers in owners.values()):
        return [(0, group)]
    return list(parts.items())


def _known(member: TarMember, archive: Path, left_out: LeftOut) -> _Member | None:
    # `tar -c .` writes "./cats/1.jpg".
    path = PurePosixPath(unicodedata.normalize("NFC", member.name))
    place = f"{archive}: {member.name}"
    try:
        member.name.encode()
    except UnicodeEncodeError:
        left_out.pass_over(f"{archive}: {member.name!a}", FileFault.NAME_NOT_UTF8)
        return None
    if path.name.startswith("."):
        if not path.name.startswith(("._", ".DS_Store")):
            left_out.pass_over(place, FileFault.HIDDEN)
        return None
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        left_out.pass_over(place)
        return None
    key = path.with_name(path.name.partition(".")[0])
    return _Member(member, kind, str(path.with_suffix("")), str(key))


def _paired(group: list[_Member], archive: Path, left_out: LeftOut) -> dict[str, Sample]:
    """Returns the records among files with one name up to the first dot."""
    by_stem: dict[str, dict[str, _Member]] = defaultdict(dict)
    pictures = {each.stem for each in group if each.kind == PICTURE}
    for each in group:
        stem = each.stem
        if each.kind != PICTURE and stem not in pictures:
            # 1.jpg.txt belongs to 1.jpg.
            named = PurePosixPath(stem)
            if named.suffix.lower() in PICTURE_SUFFIXES and str(named.with_suffix("")) in pictures:
                stem = str(named.with_suffix(""))
        if each.kind in by_stem[stem]:
            raise CorpusMalformed(
                f"{archive}: {each.member.name} is a second {each.kind} of {stem!r}; rename one"
            )
        by_stem[stem][each.kind] = each
    pairing = _Pairing(archive, left_out, {})
    pairing.records.update(pairing.left_of(group[0].key, by_stem))
    return {
        stem: {kind: each.member for kind, each in files.items()}
        for stem, files in pairing.records.items()
    }


_Stems = dict[str, dict[str, _Member]]
"""Files by their stem and kind."""


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Pairs files with one name up to the first dot, from the longest names to the shortest."""

    archive: Path
    left_out: LeftOut
    records: _Stems
    """Complete records."""

    def left_of(self, name: str, stems: _Stems) -> _Stems:
        """Returns the unpaired files of `name` and of longer names that extend it after a dot."""
        plain = stems.get(name, {})
        longer: dict[str, _Stems] = defaultdict(dict)
        for stem, files in stems.items():
            if stem != name:
                part = stem.removeprefix(f"{name}.").partition(".")[0]
                longer[f"{name}.{part}"][stem] = files
        before = len(self.records)
        left: _Stems = {}
        for child, child_stems in longer.items():
            left |= self.left_of(child, child_stems)
        if plain:
            return self._completed(name, plain, left)
        kinds = {kind for files in left.values() for kind in files}
        if len(self.records) > before or PICTURE not in kinds or kinds == {PICTURE}:
            return left
        return self._completed(name, {}, left)

    def _completed(self, name: str, plain: dict[str, _Member], longer: _Stems) -> _Stems:
        """Adds the picture or the captions that `name` lacks; returns what is left."""
        files, left = dict(plain), dict[str, dict[str, _Member]]()
        lacks_picture = PICTURE not in plain
        lacks_texts = not {TEXT, JSON} & plain.keys()
        for stem, its_files in longer.items():
            for kind, each in its_files.items():
                if lacks_picture if kind == PICTURE else lacks_texts:
                    if kind in files or _is_number_behind(name, stem):
                        raise self._ambiguous(name, longer)
                    files[kind] = each
                elif _is_number_behind(name, stem):
                    left.setdefault(stem, {})[kind] = each
                else:
                    self.left_out.pass_over(f"{self.archive}: {each.member.name}", FileFault.EXTRA)
        if PICTURE in files and len(files) > 1:
            self.records[name] = files
        else:
            left[name] = files
        return left

    def _ambiguous(self, name: str, longer: _Stems) -> CorpusMalformed:
        names = sorted(each.member.name for files in longer.values() for each in files.values())
        return CorpusMalformed(
            f"{self.archive}: which of {', '.join(names)} belong to {name!r} is ambiguous; give a "
            "picture and its captions one name up to the last dot"
        )


def _is_number_behind(name: str, stem: str) -> bool:
    """Returns whether the part after the dot is a number: the 05 of 22.05.png."""
    return stem.removeprefix(f"{name}.").replace(".", "").isdigit()
