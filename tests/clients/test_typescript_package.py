"""clients/typescript: what its package.json says is what its files need."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "clients/typescript"
IMPORTED = re.compile(r"""from ["'](@[^/"']+/[^/"']+|[^./"'][^/"']*)""")


def imported_by(*paths: Path) -> set[str]:
    """Returns the packages that files import."""
    return {name for path in paths for name in IMPORTED.findall(path.read_text(encoding="utf-8"))}


def package() -> dict[str, Any]:
    """Returns package.json."""
    found: dict[str, Any] = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    return found


def test_it_depends_on_what_its_files_import() -> None:
    """Connect's transports need one version of Connect, which the caller chooses."""
    files = [FOLDER / "index.js", *(FOLDER / "gen").rglob("*.js")]

    assert imported_by(*files) == set(package()["dependencies"]) == {"@bufbuild/protobuf"}
    assert package()["dependencies"]["@bufbuild/protobuf"].startswith("^")


def test_its_example_needs_connect_in_addition() -> None:
    """In one version, by which make test-clients runs it."""
    development = package()["devDependencies"]
    needed = imported_by(FOLDER / "examples/search.js") - {package()["name"]}

    assert needed - set(package()["dependencies"]) == {
        "@connectrpc/connect",
        "@connectrpc/connect-node",
    }
    assert development["@connectrpc/connect"] == development["@connectrpc/connect-node"]
