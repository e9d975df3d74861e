"""Collects the pages of the site in build/docs/pages; `make docs` then runs mkdocs over them.

The repository's own layout is kept, so that each link works on the site as it does in a clone.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from proto_reference import write_proto_pages

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build/docs/pages"
# How far pages come before others in a search: those that say how to do something first.
BOOST_OF = {
    "docs/decisions/0": 0,  # 0 leaves a page out: why something was chosen is not how to use it.
    "benchmarks/results/": 0,
    "docs/reference/": 0.2,
    "CHANGELOG.md": 0.2,
    "benchmarks/": 0.2,
    "distributions/": 0.2,
    "docs/": 2,
}
# Words that people search for and pages call otherwise.
WORDS_OF = {
    "docs/photographs.md": ["photos", "photo", "album", "pictures"],
    "docs/your-pictures.md": ["photos", "pictures", "folder"],
    "docs/calibration.md": ["uncalibrated"],
    "docs/vector-index.md": ["delete", "drop", "list"],
    "docs/client.md": ["delete", "remove", "add"],
    "docs/install.md": ["pip", "wheel"],
}
SDK_PAGE = """# Python client

::: tandem.client
"""


def stage() -> None:
    """Copies every tracked page and what it links to, and writes the reference pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    pages = [ROOT / name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    # A link is there for a distribution; its page is staged from where it lies.
    for page in (page for page in pages if page.exists() and not page.is_symlink()):
        for path in [page, *_linked_files(page)]:
            target = PAGES / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    shutil.copyfile(ROOT / "gateway_svc/console/icon.svg", PAGES / "icon.svg")
    reference = PAGES / "docs/reference"
    write_proto_pages(ROOT / "protos", reference / "protos")
    (reference / "sdk.md").write_text(SDK_PAGE, encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        _rank(page)


def _rank(page: Path) -> None:
    """Writes into a page how far, and by which other words, a search finds it."""
    name = page.relative_to(PAGES).as_posix()
    boost = next((boost for start, boost in BOOST_OF.items() if name.startswith(start)), 1)
    rank = f"boost: {boost}" if boost else "exclude: true"
    text = page.read_text(encoding="utf-8")
    tags = json.dumps(WORDS_OF.get(name, []))
    head = f"---\nsearch:\n  {rank}\ntags: {tags}\n---\n\n"
    page.write_text(head + text, encoding="utf-8")


def _linked_files(page: Path) -> list[Path]:
    """Returns the files in the repository that a page links to or shows."""
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    paths = [(page.parent / link).resolve() for link in links if "://" not in link]
    return [path for path in paths if path.is_file() and path.is_relative_to(ROOT)]


if __name__ == "__main__":
    stage()
