"""Kubernetes' own schemas, strictly, and small ones of ours for the kinds of its extensions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema
import kubernetes_validate
from referencing import Registry
from referencing import Resource as Schema

from tests.support.deploy.rendered import Resource, named

_ISSUER_REF = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kind": {"enum": ["Issuer", "ClusterIssuer"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}
_STRINGS = {"type": "array", "items": {"type": "string"}, "minItems": 1}


def _strict(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# What we use of the fields that these kinds' own documents name; no more is let through.
EXTENSIONS: dict[str, dict[str, Any]] = {
    "cert-manager.io/v1 Issuer": _strict(
        {
            "selfSigned": {"type": "object", "maxProperties": 0},
            "ca": _strict({"secretName": {"type": "string"}}, ["secretName"]),
        },
        [],
    ),
    "cert-manager.io/v1 Certificate": _strict(
        {
            "isCA": {"type": "boolean"},
            "commonName": {"type": "string"},
            "secretName": {"type": "string"},
            "duration": {"pattern": r"^\d+h$"},
            "renewBefore": {"pattern": r"^\d+h$"},
            "usages": _STRINGS,
            "dnsNames": _STRINGS,
            "ipAddresses": _STRINGS,
            "privateKey": _strict(
                {
                    "algorithm": {"enum": ["ECDSA"]},
                    "size": {"enum": [256]},
                    "rotationPolicy": {"enum": ["Always", "Never"]},
                },
                ["algorithm", "size"],
            ),
            "issuerRef": _ISSUER_REF,
        },
        ["secretName", "issuerRef", "privateKey"],
    ),
    "monitoring.coreos.com/v1 ServiceMonitor": _strict(
        {
            "selector": _strict({"matchLabels": {"type": "object"}}, ["matchLabels"]),
            "jobLabel": {"type": "string"},
            "targetLabels": _STRINGS,
            "endpoints": {
                "type": "array",
                "items": _strict(
                    {"port": {"type": "string"}, "interval": {"pattern": r"^\d+s$"}}, ["port"]
                ),
            },
        },
        ["selector", "endpoints"],
    ),
}


def latest_versions(count: int) -> list[str]:
    """Returns the newest minor versions of Kubernetes whose schemas are here."""
    return list(dict.fromkeys(kubernetes_validate.utils.all_versions()))[-count:]


def kind_of(resource: Resource) -> str:
    """Returns group, version and kind, as EXTENSIONS names them."""
    return f"{resource['apiVersion']} {resource['kind']}"


def schema_faults(resources: Sequence[Resource], version: str) -> Iterator[str]:
    """Yields everything that the schemas do not allow; a kind that has none is a fault too."""
    for resource in resources:
        if kind_of(resource) in EXTENSIONS:
            validator = jsonschema.Draft202012Validator(EXTENSIONS[kind_of(resource)])
            found = validator.iter_errors(resource["spec"])
        elif (own := _validator(resource["apiVersion"], resource["kind"], version)) is not None:
            found = own.iter_errors(resource)
        else:
            yield f"{named(resource)}: no schema for {kind_of(resource)}"
            continue
        for error in found:
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
