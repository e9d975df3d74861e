"""Kubernetes' own schemas, strictly."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jsonschema
import kubernetes_validate
from referencing import Registry
from referencing import Resource as Schema

from tests.support.deploy.rendered import Resource, named

# Of extensions, whose schemas are not here; policies read the fields that we depend on.
EXTENSIONS: Final = (
    "cert-manager.io/v1 Issuer",
    "cert-manager.io/v1 Certificate",
    "monitoring.coreos.com/v1 ServiceMonitor",
)


def latest_versions(count: int) -> list[str]:
    """Returns the newest minor versions of Kubernetes whose schemas are here."""
    return list(dict.fromkeys(kubernetes_validate.utils.all_versions()))[-count:]


def schema_faults(resources: Sequence[Resource], version: str) -> Iterator[str]:
    """Yields everything that the schemas do not allow; a kind that has none is a fault too."""
    for resource in resources:
        kind = f"{resource['apiVersion']} {resource['kind']}"
        if kind in EXTENSIONS:
            continue
        validator = _validator(resource["apiVersion"], resource["kind"], version)
        if validator is None:
            yield f"{named(resource)}: no schema for {kind}"
            continue
        for error in validator.iter_errors(resource):
            place = ".".join(map(str, error.absolute_path))
            yield f"{named(resource)}: {place}: {error.message[:200]}"


@functools.cache
def _validator(api_version: str, kind: str, version: str) -> jsonschema.Draft202012Validator | None:
    group, _, name = api_version.rpartition("/")
    prefix = f"{group.partition('.')[0]}-{name}" if group else name
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    contents = kubernetes_validate.utils.schema_contents
    try:
        schema = contents(f"{folder}/{kind.lower()}-{prefix}.json", version)
    except FileNotFoundError:
        return None
    return jsonschema.Draft202012Validator(schema, registry=_definitions(version, folder))


@functools.cache
def _definitions(version: str, folder: str) -> Registry[Any]:
    contents = kubernetes_validate.utils.schema_contents
    resource = Schema.from_contents(contents(f"{folder}/_definitions.json", version))
    registry: Registry[Any] = resource @ Registry()
    return registry
