"""deploy/sbom.py: every package of each lock is in the document, as the lock has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.deploy.rendered import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
# Locks of tools and of Triton, which no package of an install depends on.
STANDALONE = {"docs", "triton"}
# Of CycloneDX 1.6's own schema what this document uses, and nothing else let in.
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["bomFormat", "specVersion", "components", "dependencies", "metadata"],
    "properties": {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "version": {"const": 1},
        "metadata": {"required": ["component"]},
        "components": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "bom-ref", "name", "version", "purl", "scope"],
                "properties": {
                    "type": {"const": "library"},
                    "bom-ref": {"type": "string"},
                    "name": {"type": "string"},
                    "version": {"type": "string"},
                    "purl": {"pattern": "^pkg:pypi/[a-z0-9._-]+@[^+]+$"},
                    "scope": {"enum": ["required", "excluded"]},
                    "hashes": {
                        "items": {
                            "properties": {
                                "alg": {"const": "SHA-256"},
                                "content": {"pattern": "^[0-9a-f]{64}$"},
                            }
                        }
                    },
                    "licenses": {
                        # One expression, or any number of names: never both.
                        "oneOf": [
                            {"maxItems": 1, "items": {"required": ["expression"]}},
                            {"items": {"required": ["license"]}},
                        ]
                    },
                    "properties": {"type": "array"},
                },
            },
        },
        "dependencies": {"items": {"required": ["ref", "dependsOn"]}},
    },
}


def sbom(lock: Path, *arguments: str) -> dict[str, Any]:
    """Returns what the program writes of a lock."""
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "sbom.py", lock, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def missing(lock_text: str, made: dict[str, Any]) -> list[str]:
    """Returns what a lock says and the document does not; read otherwise than the program does."""
    found = {
        f"{each['name']}=={each['version']}": {one["content"] for one in each["hashes"]}
        for each in made["components"]
    }
    faults: list[str] = []
    for block in re.split(r"\n(?=\S)", lock_text.strip()):
        pin = block.split()[0]
        hashes = set(re.findall(r"sha256:([0-9a-f]+)", block))
        if pin not in found:
            faults.append(pin)
        elif found.pop(pin) != hashes:
            faults.append(f"hashes of {pin}")
    return faults + [f"{pin} is in no lock" for pin in found]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_is_in_its_document_whole(lock: Path) -> None:
    """Every pin with every hash, and nothing else; who needs whom ends at what is there."""
    made = sbom(lock)

    jsonschema.validate(made, SCHEMA)
    assert missing(lock.read_text(), made) == []
    references = {each["bom-ref"] for each in made["components"]}
    references.add(made["metadata"]["component"]["bom-ref"])
    needs = {each["ref"]: set(each["dependsOn"]) for each in made["dependencies"]}
    assert needs.keys() == references
    reached: set[str] = set()
    waiting = [made["metadata"]["component"]["bom-ref"]]
    while waiting:
        reached.add(reference := waiting.pop())
        waiting += needs[reference] - reached
    # The rest is what torch needs, which no lock has, and tools of development.
    assert bool(needs["pkg:pypi/tandem-search@0.1.0"]) == (lock.stem not in STANDALONE)
    assert lock.stem != "serve" or reached == references
    required = [each for each in made["components"] if each["scope"] == "required"]
    # What is not installed here has no licence to read.
    if lock.stem not in STANDALONE:
        assert len([each for each in required if each.get("licenses")]) > 0.9 * len(required)


def test_the_same_lock_gives_the_same_document() -> None:
    """So that two of them can be compared."""
    assert sbom(LOCKS[0]) == sbom(LOCKS[0])


def test_a_package_beside_the_lock_is_told_as_installed() -> None:
    """torch is in no lock, and in every environment that trains."""
    made = sbom(LOCKS[0], "--also", "torch")

    (torch,) = (each for each in made["components"] if each["name"] == "torch")
    assert torch["version"].startswith("2.")
    assert torch["hashes"] == []


def test_a_package_that_is_left_out_would_be_seen(tmp_path: Path) -> None:
    """The controls: a pin, and a hash, that the document does not have."""
    text = LOCKS[0].read_text()
    made = sbom(LOCKS[0])
    more = f"{text}zzz==1.0 \\\n    --hash=sha256:{'0' * 64}\n"
    other = text.replace("sha256:", f"sha256:{'f' * 64} --hash=sha256:", 1)

    assert missing(more, made) == ["zzz==1.0"]
    assert len(missing(other, made)) == 1
    broken = made | {"components": [{**made["components"][0], "scope": "sometimes"}]}
    with pytest.raises(jsonschema.ValidationError, match="sometimes"):
        jsonschema.validate(broken, SCHEMA)
