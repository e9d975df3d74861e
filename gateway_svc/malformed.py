"""Names what is wrong with a request, and what its door takes instead."""

from __future__ import annotations

from tandem.errors import RequestMalformed

JSON_REMEDY = "send JSON as /openapi.json describes it"
FRAME_REMEDY = "send each message of tandem.v1 uncompressed, after its flags and its length"


def malformed(why: str, remedy: str = JSON_REMEDY) -> RequestMalformed:
    """Returns the error of a request over HTTP; its remedy is for a caller that sends JSON."""
    return RequestMalformed(why=why, remedy=remedy)
