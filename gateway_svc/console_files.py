"""Serves the files of the web console, which are read into memory at start.

A path is looked up among the names of those files, so none can lead out of their folder.
"""

import json
import mimetypes
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway_svc.faults import NOTHING_HERE, HttpRefusal, problem
from gateway_svc.settings import GatewaySettings

FOLDER = Path(__file__).parent / "console"
API_PAGE = Path(__file__).parent / "api_page"

_INDEX = "index.html"
# What the page reads of the gateway's settings.
_SETTINGS = "console.json"
# Files that explain the folder, and are not served.
_LEFT_OUT = {".md", ".py", ".pyc"}
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


class ConsoleFiles:
    """An ASGI application: GET and HEAD of the files, and the start page at "/"."""

    def __init__(
        self, folder: Path = FOLDER, prefix: str = "", added: Mapping[str, bytes] | None = None
    ) -> None:
        """Reads every file below `folder`, to be served below `prefix` together with `added`."""
        self._prefix = prefix
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for name, content in (added or {}).items():
            self._add(name, content)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in _LEFT_OUT:
                self._add(path.relative_to(folder).as_posix(), path.read_bytes())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._answer(Request(scope))(scope, receive, send)

    def _add(self, name: str, content: bytes) -> None:
        suffix = Path(name).suffix
        kind = _TYPES.get(suffix) or mimetypes.types_map.get(suffix, "application/octet-stream")
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        path = f"{self._prefix}/{name}"
        self._files[path] = (content, kind, tag)
        if Path(name).name == _INDEX:
            self._files[path.removesuffix(_INDEX)] = (content, kind, tag)

    def _answer(self, request: Request) -> Response:
        found = self._files.get(request.url.path)
        if found is None:
            return problem(HttpRefusal(HTTPStatus.NOT_FOUND, NOTHING_HERE))
        if request.method not in ("GET", "HEAD"):
            refusal = HttpRefusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "this path is only read; send GET",
                {"allow": "GET, HEAD"},
            )
            return problem(refusal)
        content, kind, tag = found
        # Browsers ask again, and mostly hear that nothing changed.
        headers = {"etag": tag, "cache-control": "no-cache"}
        known = request.headers.get("if-none-match", "").split(",")
        if {each.strip().removeprefix("W/") for each in known} & {tag, "*"}:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(content, headers=headers, media_type=kind)


def console_settings(settings: GatewaySettings) -> dict[str, bytes]:
    """Returns the file that tells the page what the operator chose, by its name."""
    shown = {
        "note": settings.console_note,
        "traceUrl": settings.console_trace_url,
        "dashboardUrl": settings.console_dashboard_url,
    }
    return {_SETTINGS: json.dumps(shown).encode()}
