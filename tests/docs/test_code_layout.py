"""docs/architecture.md, "Code layout", shows the folders that there are."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_code_layout_shows_the_tree() -> None:
    """Every folder at the top, and every package of tandem; files stay in their packages' maps."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    layout = page.partition("## Code layout")[2].split("```")[1]
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    parts = [Path(name).parts for name in listed.split("\0") if (ROOT / name).is_file()]

    top = {first for first, *inner in parts if inner and not first.startswith(".")}
    packages = {inner[0] for first, *inner in parts if first == "tandem" and len(inner) > 1}

    assert sorted(re.findall(r"^(\w+)/", layout, re.MULTILINE)) == sorted(top)
    assert sorted(re.findall(r"^  (\w+)/", layout, re.MULTILINE)) == sorted(packages)
