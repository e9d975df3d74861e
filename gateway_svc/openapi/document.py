"""Builds the OpenAPI document of all routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from gateway_svc.http_call import HttpEndpoint
from gateway_svc.openapi.schemas import Schemas, problem_answer
from tandem import __version__

_DESCRIPTION = (
    "Tandem finds images by text and texts by images. Errors are problem details with the reasons "
    "of the gRPC API."
)

Route = tuple[str, str, HttpEndpoint]
"""A path, an HTTP method, and what answers it."""


def openapi_document(routes: Iterable[Route]) -> bytes:
    """Returns the document as JSON."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for path, http_method, endpoint in routes:
        operation = endpoint.operation(schemas)
        operation["operationId"] = f"{endpoint.name}_{http_method}".lower()
        if operation["operationId"] in _ids(paths):
            operation["operationId"] += f"_{len(paths)}"
        operation["summary"] = _summary(endpoint)
        operation["responses"].setdefault("default", problem_answer("A refusal or a fault"))
        paths.setdefault(path.replace(":path}", "}"), {})[http_method.lower()] = operation
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Tandem", "version": __version__, "description": _DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": schemas.components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"token": []}],
        }
    ).encode()


def _summary(endpoint: HttpEndpoint) -> str:
    """Returns the first sentence on the endpoint, without the path, which the document has."""
    sentence = (type(endpoint).__doc__ or "").split("\n")[0]
    sentence = sentence.replace("One public method", f"{endpoint.method.name} of the gRPC API")
    return re.sub(r": (GET|PUT|POST|DELETE) /.*", ".", sentence)


def _ids(paths: dict[str, dict[str, Any]]) -> set[str]:
    return {each["operationId"] for item in paths.values() for each in item.values()}
