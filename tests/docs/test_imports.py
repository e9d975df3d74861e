"""What the pages import from Tandem is there."""

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
IMPORT = re.compile(r"^from (tandem(?:\.\w+)*) import ([\w, ]+)$", re.MULTILINE)


def missing(text: str) -> list[str]:
    """Returns the modules and names that the imports of a page do not find."""
    found = []
    for module, names in IMPORT.findall(text):
        try:
            there = importlib.import_module(module)
        except ModuleNotFoundError:
            found.append(module)
            continue
        found += [f"{module}.{name}" for name in names.split(", ") if not hasattr(there, name)]
    return found


def test_every_import_of_a_page_is_found() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    assert sum(len(IMPORT.findall(text)) for text in texts.values()) > 20
    assert {name: found for name, text in texts.items() if (found := missing(text))} == {}
    moved = "from tandem.lab.nowhere import x\nfrom tandem.errors import Nothing\n"
    assert missing(moved) == ["tandem.lab.nowhere", "tandem.errors.Nothing"]
