"""docs/README.md lists every page, and docs/decisions/README.md every decision, once."""

import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def linked(page: Path) -> Counter[Path]:
    """Counts the pages that `page` links to."""
    links = re.findall(r"\]\(([^)#\s]+\.md)\)", page.read_text(encoding="utf-8"))
    return Counter((page.parent / link).resolve() for link in links if "://" not in link)


@pytest.mark.parametrize("folder", [DOCS, DOCS / "decisions"], ids=["docs", "decisions"])
def test_the_map_lists_each_page_of_its_folder_once(folder: Path) -> None:
    """A page that no map lists cannot be found, and one listed twice has no place."""
    pages = sorted({path.resolve() for path in folder.glob("*.md")} - {folder / "README.md"})
    counts = linked(folder / "README.md")

    assert len(pages) > 10
    assert {str(page): counts[page] for page in pages if counts[page] != 1} == {}
