"""The files of requirements/ lock what pyproject.toml asks for."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tandem.triton.install import WHEEL

ROOT = Path(__file__).parents[1]

# torch is installed first, in the build that the machine needs (see the Makefile).
UNLOCKED = {"torch", "tandem-search", "tandem-search-client", "tandem-search-demo"}
LOCKS = (
    "cpu.txt",
    "console.txt",
    "docs.txt",
    "milvus.txt",
    "object_store.txt",
    "official.txt",
    "pgvector.txt",
    "reference.txt",
    "torch.txt",
    "triton.txt",
)


def asked_for() -> list[Requirement]:
    """Returns every requirement of every extra and group."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    lists = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *pyproject["dependency-groups"].values(),
    ]
    requirements = [Requirement(line) for lines in lists for line in lines if isinstance(line, str)]
    return [requirement for requirement in requirements if requirement.name not in UNLOCKED]


def locked(lock: str = "cpu.txt") -> dict[str, str]:
    """Returns the version of each package in the lock."""
    text = (ROOT / "requirements" / lock).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_every_requirement_is_locked_to_a_version_it_allows() -> None:
    """A change to pyproject.toml needs `make lock`."""
    versions = {name: version for lock in reversed(LOCKS) for name, version in locked(lock).items()}
    requirements = asked_for()

    assert [str(each) for each in requirements if each.name not in versions] == []
    assert [
        f"{each}: {versions[each.name]}"
        for each in requirements
        if not each.specifier.contains(versions[each.name])
    ] == []


def test_every_pin_has_a_hash() -> None:
    """A package that was changed in its registry is then refused."""
    for lock in LOCKS:
        text = (ROOT / "requirements" / lock).read_text()
        pins = re.findall(r"^\S+==(?:.*\\\n)*.*", text, re.MULTILINE)

        assert len(pins) == len(locked(lock))
        assert [pin for pin in pins if "--hash=sha256:" not in pin] == []


def test_the_site_is_built_with_the_same_versions() -> None:
    """`make docs` installs into the same environment, where a package has one version."""
    shared = locked().keys() & locked("docs.txt").keys()

    assert shared
    assert {name: locked("docs.txt")[name] for name in shared} == {
        name: locked()[name] for name in shared
    }


def test_torchs_dependencies_are_locked_for_its_image() -> None:
    """All of it and no more, by the versions of the other lock where that has them."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["torch"]
    asked = {
        requirement.name: requirement
        for requirement in map(Requirement, importlib.metadata.requires("torch") or [])
        if not requirement.marker or requirement.marker.evaluate({"platform_system": "none"})
    }

    assert {str(Requirement(line)) for line in group} == {
        f"{each.name}{each.specifier}" for each in asked.values()
    }
    assert asked.keys() <= locked("torch.txt").keys()
    for name in locked("torch.txt").keys() & locked().keys():
        assert locked("torch.txt")[name] == locked()[name]


def test_nothing_brings_cuda_by_the_back_door() -> None:
    """The lock is for CPUs: torch's CUDA packages are gigabytes that no one requested."""
    assert not {name for name in locked() if name.startswith(("cuda", "nvidia-cu", "torch"))}


def test_the_hint_for_a_missing_triton_names_the_locked_version() -> None:
    """The message names a version, and pip by hand knows no lock."""
    assert f"nvidia-pytriton=={locked('triton.txt')['nvidia-pytriton']}" == WHEEL
