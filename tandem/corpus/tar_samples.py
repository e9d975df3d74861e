"""Which files of an archive are one record: by their names, dots and all.

WebDataset ends a name at its first dot: of 0001.jpg, 0001.txt and 0001.mask.png the first two are
the record 0001, and the third is an extra. But files are called 22.05.png and 22.05.txt too. So the
files of one name up to the first dot are looked at together, and paired by what is there.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.image_sources import PICTURE_SUFFIXES
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.tar_members import TarMember

PICTURE: Final = "picture"
TEXT, JSON = ".txt file", ".json file"
_KINDS: Final = dict.fromkeys(PICTURE_SUFFIXES, PICTURE) | {".txt": TEXT, ".json": JSON}

Sample = Mapping[str, TarMember]
"""A record's files by their kind."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A file that may be a record's."""

    member: TarMember
    kind: str
    stem: str
    """Its path without the last extension."""
    key: str
    """Its path up to the first dot of its name."""


def tar_samples(
    members: Iterator[TarMember], archive: Path, left_out: LeftOut
) -> dict[str, Sample]:
    """Returns the files of each record, by its name, in the order of their first files.

    Refuses what could be paired in more ways than one, and two files of one kind and name. Files
    that are no record's `left_out` has.
    """
    groups: dict[str, list[_Member]] = defaultdict(list)
    for member in members:
        known = _known(member, archive, left_out)
        if known:
            groups[known.key].append(known)
    samples: dict[str, Sample] = {}
    order: dict[str, int] = {}
    for group in groups.values():
        try:
            paired = _paired(group, archive, left_out)
        except CorpusMalformed as error:
            left_out.refuse(error)
            continue
        for name, files in paired.items():
            samples[name] = files
            order[name] = min(each.offset_bytes for each in files.values())
    return {name: samples[name] for name in sorted(samples, key=order.__getitem__)}


def _known(member: TarMember, archive: Path, left_out: LeftOut) -> _Member | None:
    # "./cats/1.jpg" is how `tar -c .` calls it.
    path = PurePosixPath(unicodedata.normalize("NFC", member.name))
    place = f"{archive}: {member.name}"
    if any(0xD800 <= ord(letter) < 0xE000 for letter in member.name):
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
    """Returns the records among the files of one name up to the first dot."""
    key = group[0].key
    by_stem: dict[str, dict[str, _Member]] = defaultdict(dict)
    pictures = {each.stem for each in group if each.kind == PICTURE}
    for each in group:
        stem = each.stem
        if each.kind != PICTURE and stem not in pictures:
            # 1.jpg.txt is of 1.jpg.
            named = PurePosixPath(stem)
            if named.suffix.lower() in PICTURE_SUFFIXES and str(named.with_suffix("")) in pictures:
                stem = str(named.with_suffix(""))
        if each.kind in by_stem[stem]:
            raise CorpusMalformed(
                f"{archive}: {each.member.name} is a second {each.kind} of {stem!r}; rename one"
            )
        by_stem[stem][each.kind] = each
    if len(by_stem) == 1:
        # One name, whichever way it is read: "22.05" where its picture and text agree on it.
        ((stem, files),) = by_stem.items()
        return {stem: _sample(files)}
    own = {stem: files for stem, files in by_stem.items() if PICTURE in files and len(files) > 1}
    plain = by_stem.get(key, {})
    rest = {stem: files for stem, files in by_stem.items() if stem != key and stem not in own}
    if plain:
        record = _completed(key, plain, rest, archive, left_out)
        return {key: record} | {stem: _sample(own[stem]) for stem in own if stem != key}
    if not own and _has_both(rest):
        return {key: _completed(key, {}, rest, archive, left_out)}
    return {stem: _sample(files) for stem, files in by_stem.items()}


def _completed(
    key: str,
    plain: Mapping[str, _Member],
    rest: Mapping[str, Mapping[str, _Member]],
    archive: Path,
    left_out: LeftOut,
) -> Sample:
    """Returns a record with what it lacks, a picture or captions, from files of longer names."""
    files = dict(plain)
    lacks_picture = PICTURE not in plain
    lacks_texts = not {TEXT, JSON} & plain.keys()
    for longer in rest.values():
        for kind, each in longer.items():
            if not (lacks_picture if kind == PICTURE else lacks_texts):
                left_out.pass_over(f"{archive}: {each.member.name}", FileFault.EXTRA)
            elif kind in files or (not plain and _has_number(key, each)):
                others = ", ".join(
                    sorted(other.member.name for one in rest.values() for other in one.values())
                )
                raise CorpusMalformed(
                    f"{archive}: which of {others} belong to {key!r} is ambiguous; give a picture "
                    "and its captions one name up to the last dot"
                )
            else:
                files[kind] = each
    return _sample(files)


def _has_both(rest: Mapping[str, Mapping[str, _Member]]) -> bool:
    kinds = {kind for files in rest.values() for kind in files}
    return PICTURE in kinds and len(kinds) > 1


def _has_number(key: str, each: _Member) -> bool:
    """Returns whether what follows the first dot may be a name's: the 05 of 22.05.png."""
    return each.stem.removeprefix(f"{key}.").replace(".", "").isdigit()


def _sample(files: Mapping[str, _Member]) -> Sample:
    return {kind: each.member for kind, each in files.items()}
