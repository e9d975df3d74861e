"""What kustomize makes of deploy/kubernetes, by the kubectl that the lock pins."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = tuple(sorted(path.name for path in (KUBERNETES / "overlays").iterdir()))

Resource = dict[str, Any]


def installed_command(name: str) -> str:
    """Returns the path of a program that a package of the lock brings."""
    beside = sysconfig.get_path("scripts")
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ["PATH"]]))
    assert found, f"no {name} here: make install"
    return found


@functools.cache
def rendered_text(folder: Path) -> str:
    """Returns what `kubectl kustomize` prints; raises AssertionError with what it complains of."""
    # No cluster of the machine that runs the tests is of interest.
    environment = os.environ | {"KUBECONFIG": os.devnull}
    done = subprocess.run(
        [installed_command("kubectl"), "kustomize", folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    # Deprecated fields are reported on stderr.
    assert not done.stderr, f"{folder}: {done.stderr}"
    return done.stdout


def rendered(overlay: str) -> list[Resource]:
    """Returns an overlay's resources, the caller's to change."""
    return parsed(rendered_text(KUBERNETES / "overlays" / overlay))


def parsed(text: str) -> list[Resource]:
    """Returns the documents of a YAML text."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def named(resource: Resource) -> str:
    """Returns kind and name, to tell of."""
    return f"{resource['kind']}/{resource['metadata']['name']}"


def of_kind(resources: Sequence[Resource], *kinds: str) -> list[Resource]:
    """Returns the resources of these kinds."""
    return [resource for resource in resources if resource["kind"] in kinds]


def one(resources: Sequence[Resource], kind: str, name: str) -> Resource:
    """Returns the resource of that kind and name."""
    (found,) = (each for each in of_kind(resources, kind) if each["metadata"]["name"] == name)
    return found
