"""Reads a model card's licence, and says what a user should know of it."""

import re
from itertools import takewhile
from pathlib import Path
from typing import Final

from tandem.platform.files.json_object import FileInvalid

_MAX_BYTES: Final = 4 << 20
_FIELD: Final = re.compile(r"^(license|license_name)\s*:\s*(.*?)\s*(?:#.*)?$")
_ENTRY: Final = re.compile(r"\s*-\s+(\S.*?)\s*(?:#.*)?$")
# As parts of a licence's name: CC-BY-NC, research licences, and those of single companies.
_NON_COMMERCIAL: Final = re.compile(
    r"(^|[-_ ])(nc|non-?commercial|research|amlr|fair)([-_ ]|$)", re.IGNORECASE
)


def card_licence(card: Path) -> str:
    """Returns the licence in the card's front matter, empty if it names none.

    Several are joined. A licence of the publisher's own ("other") is given by its name. Raises
    FileInvalid for a card that is not text.
    """
    try:
        with card.open("rb") as file:
            lines = file.read(_MAX_BYTES).decode("utf-8", errors="ignore").splitlines()
    except OSError as error:
        raise FileInvalid(f"{card} cannot be read: {error.strerror}") from error
    if not lines or lines[0].strip("\ufeff \t") != "---":
        return ""
    named = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "---":
            break
        if found := _FIELD.match(line):
            inline = found[2].removeprefix("[").removesuffix("]").split(",")
            listed = inline if found[2] else map(_entry, takewhile(_entry, lines[number:]))
            named[found[1]] = " and ".join(each.strip("\"' ") for each in listed)
    licence = named.get("license", "")
    return named.get("license_name", licence) if licence in ("other", "") else licence


def _entry(line: str) -> str:
    """Returns what a line of a YAML list holds; empty for other lines."""
    found = _ENTRY.match(line)
    return found[1] if found else ""


def licence_notes(licence: str) -> tuple[str, ...]:
    """Returns what a user should read of the licence, one sentence each.

    >>> licence_notes("mit")
    ()
    >>> licence_notes("cc-by-nc-4.0")
    ('Its licence, cc-by-nc-4.0, does not allow commercial use.',)
    """
    if not licence:
        return ("Its model card names no licence: ask its publisher before you use it.",)
    if _NON_COMMERCIAL.search(licence):
        return (f"Its licence, {licence}, does not allow commercial use.",)
    if licence in ("other", "unknown"):
        return ("Its licence is its publisher's own: read it before you use the model.",)
    return ()
