"""Tests that the committed bundle of the web console is what its sources give, and small."""

import gzip
import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
BUNDLE = ROOT / "gateway_svc/console"
JUDGE_PAGE = ROOT / "tandem/cli/golden/page"
MAX_GZIP_BYTES = 60_000
# As in console/build.mjs.
SOURCE_NAMES = (
    "src",
    "../protos/tandem/v1",
    "../clients/typescript/buf.gen.yaml",
    "../clients/typescript/package-lock.json",
    "build.mjs",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
)


def test_the_bundle_is_built_from_the_sources() -> None:
    """`make console` records both digests; after a change of either it must run again."""
    record = json.loads((SOURCES / "built.json").read_text())

    assert source_digest(SOURCES) == record["sources"], "console/ changed: run make console"
    assert digests(BUNDLE, ["console.js", "style.css"]) == record["files"], "run make console"
    assert digests(JUDGE_PAGE, ["judge.css", "judge.js"]) == record["judge"], "run make console"


def test_the_bundle_is_small() -> None:
    """Everything that a browser loads has at most 60 kB, gzipped."""
    byte_count = sum(
        len(gzip.compress((BUNDLE / name).read_bytes())) for name in files_below(BUNDLE)
    )

    assert 10_000 < byte_count <= MAX_GZIP_BYTES


def test_the_page_needs_no_other_server_and_no_inline_script() -> None:
    """The gateway's content security policy would block both."""
    # The page of the HTTP API is a link, and nothing that is loaded.
    links = {"docs/", "data:,"}
    for folder, names in [
        (BUNDLE, {"console.js", "style.css", "icon.svg", "docs/"}),
        (JUDGE_PAGE, {"judge.js", "judge.css", "data:,"}),
    ]:
        page = (folder / "index.html").read_text()
        loaded = re.findall(r'(?:src|href)="([^"]*)"', page)

        assert names == set(loaded)
        assert all((folder / name).is_file() for name in set(loaded) - links)
        assert not re.search(r'<script(?![^>]*src=)|<style|style="|\son[a-z]+="', page)


def test_no_source_makes_markup_of_data() -> None:
    for path in (SOURCES / "src").glob("*.ts"):
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text()
        )
        assert not found, f"{path.name} has {found}"


def source_digest(folder: Path) -> str:
    """Returns one digest of all sources, as console/build.mjs does."""
    names = [
        name
        for each in SOURCE_NAMES
        for name in (
            [each]
            if (folder / each).is_file()
            else [f"{each}/{below}" for below in files_below(folder / each)]
        )
    ]
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder, names).items()]
    return sha256("".join(lines).encode()).hexdigest()


def files_below(folder: Path) -> list[str]:
    """Returns the names of all files, relative to the folder."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns each file's SHA-256, by name."""
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in sorted(names)}
