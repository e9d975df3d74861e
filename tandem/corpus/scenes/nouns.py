"""Names and counts drawings in four languages.

All phrases are nominative, so that no language needs case endings; the scene captions are built
accordingly ("links zwei Hunde, rechts ein Regenschirm").
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

Language = Literal["en", "de", "fr", "cs"]
LANGUAGES: tuple[Language, ...] = ("en", "de", "fr", "cs")
Role = Literal["train", "held_out"]

# Numerals by grammatical gender; only "one" (and "two" in Czech) is inflected.
_ONE: Mapping[Language, Mapping[str, str]] = {
    "en": {"": "one"},
    "de": {"m": "ein", "f": "eine", "n": "ein"},
    "fr": {"m": "un", "f": "une"},
    "cs": {"m": "jeden", "f": "jedna", "n": "jedno"},
}
_MANY: Mapping[Language, tuple[str, str, str]] = {
    "en": ("two", "three", "four"),
    "de": ("zwei", "drei", "vier"),
    "fr": ("deux", "trois", "quatre"),
    "cs": ("dva", "tři", "čtyři"),
}
MAX_COUNT = 4


@dataclass(frozen=True, slots=True)
class Name:
    """Holds one noun in one language."""

    gender: str
    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Noun:
    """Describes a countable drawn object."""

    codepoints: str
    role: Role
    # Excluded from the hash: a dict has none, and the other two fields identify the noun.
    names: Mapping[Language, Name] = field(hash=False)

    def counted(self, count: int, language: Language) -> str:
        """Returns "two dogs", "zwei Hunde", "deux chiens", "dva psi"; counts are 1 to MAX_COUNT."""
        name = self.names[language]
        if count == 1:
            return f"{_ONE[language][name.gender]} {name.one}"
        if language == "cs" and count == 2 and name.gender != "m":
            return f"dvě {name.many}"
        return f"{_MANY[language][count - 2]} {name.many}"


@cache
def load_nouns() -> tuple[Noun, ...]:
    """Returns every noun of nouns.tsv, in the file's order."""
    text = files("tandem.corpus.scenes").joinpath("nouns.tsv").read_text(encoding="utf-8")
    return tuple(_noun(line) for line in text.splitlines() if line and not line.startswith("#"))


def nouns_of(role: Role) -> tuple[Noun, ...]:
    """Returns the nouns that training draws ("train") or never sees ("held_out")."""
    return tuple(noun for noun in load_nouns() if noun.role == role)


def _noun(line: str) -> Noun:
    codepoints, role, en_one, en_many, *others = line.split("\t")
    names: dict[Language, Name] = {"en": Name("", en_one, en_many)}
    for language, start in (("de", 0), ("fr", 3), ("cs", 6)):
        gender, one, many = others[start : start + 3]
        names[language] = Name(gender, one, many)  # type: ignore[index]
    return Noun(codepoints, role, names)  # type: ignore[arg-type]
