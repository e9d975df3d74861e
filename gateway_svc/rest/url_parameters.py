"""Reads the parameters of URLs."""

from collections.abc import Mapping
from typing import Any

from gateway_svc.faults import malformed
from gateway_svc.openapi import parameter
from tandem.contract.limits import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

FLAG = {"type": "string", "enum": ["true", "false"]}
_FLAGS = {"": False, "false": False, "true": True}

PAGE_PARAMETERS = [
    parameter(
        "page_size",
        "query",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE},
        f"the most of one page; {DEFAULT_PAGE_SIZE} by default",
    ),
    parameter("page_token", "query", {"type": "string"}, "of the page before"),
]
"""What OpenAPI says of `page_of`."""

FULL_COVERAGE = parameter(
    "full_coverage_required",
    "query",
    FLAG,
    "fail if a shard does not answer",
)


def page_of(query: Mapping[str, str]) -> dict[str, Any]:
    """Returns a message's page_token, and page_size if it is given; raises RequestMalformed."""
    page: dict[str, Any] = {"page_token": query.get("page_token", "")}
    if (size := query.get("page_size")) is not None:
        # 0 would be the default.
        if not (size.isascii() and size.isdecimal() and len(size) < 10 and int(size)):
            raise malformed("page_size is not a number in range", f"send 1 to {MAX_PAGE_SIZE:,}")
        page["page_size"] = int(size)
    return page


def query_flag(query: Mapping[str, str], name: str) -> bool:
    """Returns whether a parameter is true; raises RequestMalformed."""
    value = query.get(name, "")
    if value not in _FLAGS:
        raise malformed(f"{name} is neither true nor false", "send one of them")
    return _FLAGS[value]
