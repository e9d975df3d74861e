"""Writes what an install is made of as a CycloneDX 1.6 document, out of its lock.

    python deploy/sbom.py requirements/serve.txt > build/sbom/serve.cdx.json

Needs no network and nothing beyond `make install`: versions, hashes and who needs whom stand in the
lock, licences in what the installed packages say of themselves. The same lock and environment give
the same bytes. `make sbom` writes one for each lock.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).parents[1]
SUBJECT = "tandem-search"

# What the images and `make install` run on; a lock has lines for other platforms too.
PLATFORM = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.14",
    "python_version": "3.11",
    "sys_platform": "linux",
}
_NAME = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\\n]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9._-]+)$")
# A licence's whole text, as some packages have in the field for its name.
_MAX_LICENCE_CHARACTERS = 100


@dataclass
class Locked:
    """One package of a lock."""

    name: str
    version: str
    marker: str = ""
    """On which platforms it is installed, in PEP 508's words; empty is on all."""
    hashes: tuple[str, ...] = ()
    """SHA-256 of each file that may be installed for it."""
    needed_by: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """The package's name among all kinds of packages."""
        return f"pkg:pypi/{self.name}@{self.version.replace('+', '%2B')}"


def locked(text: str) -> list[Locked]:
    """Returns the packages of a lock, in its order."""
    packages: list[Locked] = []
    for line in text.splitlines():
        if found := _NAME.match(line):
            name, version, marker = found.groups()
            packages.append(Locked(name, version, marker or ""))
        elif hashed := _HASH.search(line):
            packages[-1].hashes += (hashed[1],)
        elif (via := _VIA.match(line)) and via[1] != "via":
            packages[-1].needed_by += (via[1],)
    return packages


def installed(name: str) -> Locked:
    """Returns a package that no lock has, as it is installed here; without hashes."""
    version = importlib.metadata.version(name)
    return Locked(name, version, needed_by=(SUBJECT,))


def document(packages: Sequence[Locked], version: str) -> dict[str, Any]:
    """Returns the document, as JSON has it."""
    subject = f"pkg:pypi/{SUBJECT}@{version}"
    components = [_component(package) for package in packages]
    needs: dict[str, list[str]] = {subject: [], **{each.purl: [] for each in packages}}
    by_name = {SUBJECT: subject, **{each.name: each.purl for each in packages}}
    for package in packages:
        for name in package.needed_by:
            # An extra, or torch, which is in no lock, may stand there too.
            if name in by_name:
                needs[by_name[name]].append(package.purl)
    names = " ".join(sorted(needs))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": subject,
                "name": SUBJECT,
                "version": version,
                "purl": subject,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(set(needed))} for ref, needed in needs.items()
        ],
    }


def _component(package: Locked) -> dict[str, Any]:
    is_here = not package.marker or Marker(package.marker).evaluate(PLATFORM)
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        # Of another platform: a scanner need not report it for the image.
        "scope": "required" if is_here else "excluded",
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
    }
    if licences := list(_licences(package.name)):
        made["licenses"] = licences
    if package.marker:
        made["properties"] = [{"name": "tandem:marker", "value": package.marker}]
    return made


def _licences(name: str) -> Iterator[dict[str, Any]]:
    """Yields what the installed package says; nothing where it says nothing, or is not here."""
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return
    if "License-Expression" in metadata:
        yield {"expression": metadata["License-Expression"], "acknowledgement": "declared"}
        return
    classifiers = metadata.get_all("Classifier") or []
    names = [
        text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: OSI")
    ]
    told = metadata["License"].strip() if "License" in metadata else ""
    if not names and told and len(told) <= _MAX_LICENCE_CHARACTERS and "\n" not in told:
        names = [told]
    for each in names:
        yield {"license": {"name": each, "acknowledgement": "declared"}}


def main() -> None:
    """Prints the document."""
    parser = argparse.ArgumentParser(description="a CycloneDX document out of a lock")
    parser.add_argument("lock", type=Path)
    parser.add_argument("--also", action="append", default=[], help="a package beside the lock")
    arguments = parser.parse_args()
    packages = locked(arguments.lock.read_text(encoding="utf-8"))
    packages += map(installed, arguments.also)
    version = importlib.metadata.version(SUBJECT)
    json.dump(document(packages, version), sys.stdout, indent=2, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
