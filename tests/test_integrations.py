"""What every folder of integrations/ keeps to; its own suite runs in its own environment."""

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "integrations").glob("*/pyproject.toml"))
FROM_TANDEM = {"tandem.client", "tandem.errors"}
"""What the SDK says it has."""
IMPORTED_AS = {"haystack-ai": "haystack", "llama-index-core": "llama_index", "pillow": "PIL"}
every_folder = pytest.mark.parametrize("folder", FOLDERS, ids=[each.name for each in FOLDERS])


def project_of(folder: Path) -> dict[str, Any]:
    """Returns the folder's metadata."""
    document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = document["project"]
    return project


def package_of(folder: Path) -> Path:
    """Returns the folder's one package."""
    [package] = [path.parent for path in folder.glob("*/py.typed")]
    return package


def imported(path: Path) -> set[str]:
    """Returns the modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_there_are_some() -> None:
    """The tests below are of nothing otherwise."""
    assert [each.name for each in FOLDERS] == [
        "haystack",
        "langchain",
        "llama-index",
        "mcp",
        "ray",
    ]


@every_folder
def test_its_metadata_are_whole(folder: Path) -> None:
    """Licence, Python, and bounds below and above for all that it needs, the SDK among them."""
    project = project_of(folder)
    needed = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}

    assert project["license"] == "Apache-2.0"
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project["requires-python"] == ">=3.11"
    assert "tandem-search-client" in needed
    for name, specifier in needed.items():
        assert {each.operator for each in specifier} == {">=", "<"}, name


@every_folder
def test_it_depends_only_on_the_sdk(folder: Path) -> None:
    """Anything else of Tandem would bring a server's packages, or break with a release."""
    package = package_of(folder)
    ours = {name for path in package.rglob("*.py") for name in imported(path)}
    from_tandem = {name for name in ours if name.partition(".")[0] == "tandem"}

    assert from_tandem
    assert from_tandem <= FROM_TANDEM


@every_folder
def test_its_imports_are_declared(folder: Path) -> None:
    """A framework may drop a package that it brings today."""
    package = package_of(folder)
    names = {Requirement(each).name for each in project_of(folder)["dependencies"]}
    brought = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}
    brought |= {"tandem", package.name}
    if "mcp" in names:  # Its types are a distribution of the same version.
        brought.add("mcp_types")
    imports = {name.partition(".")[0] for path in package.rglob("*.py") for name in imported(path)}

    assert imports - brought - sys.stdlib_module_names == set()


@every_folder
def test_its_readme_says_how_to_install_and_to_test(folder: Path) -> None:
    """And the page of all integrations and the folder's list name it."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    install = f"./distributions/client ./integrations/{folder.name}"
    link = f"{folder.name}/README.md"

    assert readme.startswith(f"# {project_of(folder)['name']}\n")
    assert install in readme
    assert f"make test-integrations SUITES={folder.name}" in readme
    for script in project_of(folder).get("scripts", {}):
        assert re.search(rf"^{script} ", readme, re.MULTILINE)
    assert link in (ROOT / "integrations/README.md").read_text(encoding="utf-8")
    assert f"integrations/{link}" in (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
