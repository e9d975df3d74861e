"""Secrets that are sent through the services on purpose, and the search for them in the output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import grpc

# Of anything longer a part is as bad as the whole.
_PART_BYTES = 24


@dataclass(frozen=True, slots=True)
class Canary:
    """What must not appear, and how it would look if it did."""

    name: str
    forms: tuple[bytes, ...]


def text_canary(name: str, text: str) -> Canary:
    """Returns a text's, as it is, as JSON and as Python would write it, in hexadecimal, Base64."""
    raw = text.encode()
    part = raw[:_PART_BYTES]
    return Canary(name, (part, *_encodings(raw)))


def bytes_canary(name: str, raw: bytes) -> Canary:
    """Returns that of bytes, by their first ones; a header that all have is to be left out."""
    return Canary(
        name, (raw[:_PART_BYTES], repr(raw[:_PART_BYTES])[2:-1].encode(), *_encodings(raw))
    )


def pem_canary(name: str, path: Path) -> Canary:
    """Returns a private key's: any line of the file, and the bytes that it stands for."""
    lines = [line for line in path.read_bytes().splitlines() if not line.startswith(b"-----")]
    raw = base64.b64decode(b"".join(lines))
    return Canary(name, (*lines[1:-1], raw[-_PART_BYTES:], raw[-_PART_BYTES:].hex().encode()))


def digest_canary(name: str, token: str) -> Canary:
    """Returns that of a token file's line for a token."""
    return Canary(name, (sha256(token.encode()).hexdigest()[:_PART_BYTES].encode(),))


def found(canaries: Iterable[Canary], places: Mapping[str, bytes]) -> list[str]:
    """Returns which canary stands where, as "NAME in PLACE: …"; none is as it must be."""
    return [
        f"{canary.name} in {place}: {_around(told, form)}"
        for place, told in places.items()
        for canary in canaries
        for form in canary.forms
        if form in told
    ]


def told_by(error: grpc.RpcError) -> bytes:
    """Returns all that a refusal tells its caller: its message and its trailing metadata."""
    parts: list[bytes] = [(error.details() or "").encode()]
    for key, value in error.trailing_metadata() or ():
        parts += [key.encode(), value if isinstance(value, bytes) else value.encode()]
    return b"\n".join(parts)


def _encodings(raw: bytes) -> Iterator[bytes]:
    part = raw[:_PART_BYTES]
    yield part.hex().encode()
    yield base64.b64encode(part)
    try:
        yield json.dumps(part.decode())[1:-1].encode()
    except UnicodeDecodeError:
        return


def _around(told: bytes, form: bytes) -> str:
    start = told.index(form)
    return repr(told[max(0, start - 80) : start + len(form) + 20])
