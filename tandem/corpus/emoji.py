"""Reads the emoji drawings: 1,638 concepts in up to six styles, named in four languages.

The files are in `drawings/`. One zip per style holds `<codepoints>.webp`, 128 px on white;
`concepts.json.gz` has each concept's names and split.
"""

import gzip
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from tandem.corpus.records import Caption, ImageSource, Record
from tandem.installation import demo_folder

ConceptSplit = Literal["train", "val", "test"]
Split = Literal["train", "val", "val_style", "test", "test_style"]
SPLITS: tuple[Split, ...] = get_args(Split)

# Training never sees this style, so that test_style shows known concepts in an unknown style.
HELD_OUT_STYLE = "fluent-3d"


@dataclass(frozen=True, slots=True)
class Concept:
    """Describes what a drawing shows, in any style."""

    codepoints: str
    """Lower-case hexadecimal, joined by hyphens: "1f415-200d-1f9ba"."""
    char: str
    category: str
    split: ConceptSplit
    names: Mapping[str, str]
    """One name per language."""
    keywords: Mapping[str, tuple[str, ...]]
    """Related words by language; a language without any is absent."""


class Drawings:
    """Holds all drawings in memory (15 MB); read-only, so threads and forks may share it."""

    def __init__(self, folder: Path) -> None:
        self.concepts = _read_concepts(folder / "concepts.json.gz")
        """Concepts by code points, in order."""
        # Read whole: an open ZipFile would share its file position with every forked process.
        self._webp: dict[str, dict[str, bytes]] = {}
        for path in folder.glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                drawn = {Path(name).stem: archive.read(name) for name in archive.namelist()}
            self._webp[path.stem] = drawn
        self.styles = tuple(sorted(self._webp))

    def has(self, codepoints: str, style: str) -> bool:
        """Returns whether this concept was drawn in this style."""
        return codepoints in self._webp.get(style, {})

    def webp_bytes(self, codepoints: str, style: str) -> bytes:
        """Returns a drawing as a WebP file; raises KeyError if there is none."""
        return self._webp[style][codepoints]


@cache
def open_drawings() -> Drawings:
    """Returns the drawings of the demo; the first call reads them. Raises DemoFilesMissing."""
    return Drawings(demo_folder("corpus/drawings", "the demo's drawings (scenes, emoji)"))


@dataclass(frozen=True, slots=True)
class DrawingImage(ImageSource):
    """Reads a drawing as a record's image."""

    codepoints: str
    style: str

    def __str__(self) -> str:
        return f"drawing {self.codepoints} by {self.style}"

    def read(self) -> bytes:
        """Returns the drawing as a WebP file."""
        return open_drawings().webp_bytes(self.codepoints, self.style)


def drawing_split(concept_split: ConceptSplit, style: str) -> Split:
    """Returns the split of a drawing.

    test has concepts that training never sees, in every style; test_style has the concepts of
    train in the held-out style, and val_style those of val.
    """
    if style != HELD_OUT_STYLE or concept_split == "test":
        return concept_split
    return "test_style" if concept_split == "train" else "val_style"


def emoji_records(split: Split) -> Iterator[Record]:
    """Yields the drawings of a split, concept after concept; each concept is a family.

    Captions are the name and the keywords in each language; all drawings of a concept share them.
    Raises ValueError at the call for an unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"no split {split!r} of emoji; there are {', '.join(SPLITS)}")
    drawings = open_drawings()
    return (
        _record(concept, style, split)
        for concept in drawings.concepts.values()
        for style in drawings.styles
        if drawing_split(concept.split, style) == split and drawings.has(concept.codepoints, style)
    )


def _record(concept: Concept, style: str, split: Split) -> Record:
    record_id = f"emoji-{style}-{concept.codepoints}"
    captions: list[Caption] = []
    for language, name in concept.names.items():
        captions.append(Caption(f"{record_id}-{language}-name", name, language))
        if words := concept.keywords.get(language):
            captions.append(Caption(f"{record_id}-{language}-keywords", ", ".join(words), language))
    image = DrawingImage(concept.codepoints, style)
    family = f"emoji-{concept.codepoints}"
    return Record(record_id, tuple(captions), split, family, image, {"style": style})


def _read_concepts(path: Path) -> Mapping[str, Concept]:
    concepts = {}
    for fields in json.loads(gzip.decompress(path.read_bytes()))["concepts"]:
        keywords = {language: tuple(words) for language, words in fields.pop("keywords").items()}
        concepts[fields["codepoints"]] = Concept(**fields, keywords=keywords)
    return concepts
