"""The positive control of the policies: manifests with one thing wrong, each caught by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deploy.policies import faults
from tests.support.deploy.rendered import Resource, named, rendered
from tests.support.deploy.schemas import latest_versions, schema_faults

Row = dict[str, Any]
SABOTAGES: dict[str, list[Row]] = yaml.safe_load(
    Path(__file__).with_name("sabotage.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    ("overlay", "row"),
    [(overlay, row) for overlay, rows in SABOTAGES.items() for row in rows],
    ids=lambda each: each if isinstance(each, str) else str(each["found"]),
)
def test_a_policy_catches_each_fault(overlay: str, row: Row) -> None:
    """The overlay without the sabotage has no fault: tests/deploy/test_kubernetes.py."""
    policy, _, words = row["found"].partition(": ")
    resources = rendered(overlay)
    sabotage(resources, row)

    found = faults(resources)

    assert any(each.startswith(f"{policy}: ") and words in each for each in found), found


@pytest.mark.parametrize(
    "row",
    [
        {"of": "Deployment/encoder", "at": "pod.terminationGracePeriodSecond", "put": 40},
        {"of": "StatefulSet/shard", "at": "spec.replicas", "put": "2"},
        {"of": "PodDisruptionBudget/shard", "at": "apiVersion", "put": "policy/v1beta1"},
    ],
    ids=str,
)
def test_a_schema_catches_what_kubernetes_refuses(row: Row) -> None:
    """A field that is not known, one of another type, and an API that is gone."""
    resources = rendered("full")
    sabotage(resources, row)

    assert len(list(schema_faults(resources, latest_versions(1)[0]))) == 1


def sabotage(resources: list[Resource], row: Row) -> None:
    """Puts a row's value into its resource, or takes out what is there."""
    [whole] = [each for each in resources if _is_called(each, row["of"])]
    if "at" not in row:
        resources.remove(whole)
        return
    *folders, last = row["at"].replace("pod.", "spec.template.spec.", 1).split(".")
    place: Any = whole
    for folder in folders:
        place = place[_key(place, folder)]
    if last == "+":
        place.append(row["put"])
    elif "put" in row:
        place[_key(place, last)] = row["put"]
    else:
        del place[_key(place, last)]


def _is_called(resource: Resource, name: str) -> bool:
    # kustomize ends a ConfigMap's name in a hash.
    is_map = name.startswith("ConfigMap/")
    return named(resource).startswith(f"{name}-") if is_map else named(resource) == name


def _key(place: Any, folder: str) -> str | int:
    """Returns the key of a map, or the number of the list's entry of that name or number."""
    if isinstance(place, dict):
        return folder
    if folder.isdigit():
        return int(folder)
    names = [each.get("name") or each.get("configMapRef", {}).get("name") for each in place]
    [number] = [at for at, each in enumerate(names) if each == folder or f"{folder}-" in f"{each}"]
    return number
