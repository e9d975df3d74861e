"""A relative link in a page leads to a file of the tree."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def dead_links(page: Path) -> list[str]:
    """Lists the relative links of `page` that lead to no file, which the site refuses."""
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", page.read_text(encoding="utf-8"))
    relative = [link for link in links if ":" not in link and not link.startswith("/")]
    return [link for link in relative if not (page.parent / link).is_file()]


def test_links_lead_to_files() -> None:
    """Pages, decisions and results quote each other; what is removed takes its links with it."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "*.md"], cwd=ROOT, text=True)
    pages = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]

    assert len(pages) > 100
    assert {str(page): dead for page in pages if (dead := dead_links(page))} == {}
