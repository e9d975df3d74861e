"""Serves the page for judging on loopback, to a browser that knows the token.

The token is in the address after "#", which no other page can read, and travels in a header that
other pages may not send. Everything except the page's own files needs it.
"""

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import unquote

from tandem.errors import TandemError
from tandem.lab.evaluation.golden_set import Judgements, Lists

Content = str | bytes | None
"""A text, a picture's bytes, or None for an item that is no longer there."""

_MAX_BODY_BYTES: Final = 4_096
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src blob: data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class JudgeServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1; `serve_forever` serves."""

    daemon_threads = True

    def __init__(
        self,
        port: int,
        pool: Lists,
        grades: Mapping[str, dict[str, int]],
        contents: Mapping[str, Callable[[str], Content]],
        judgements: Judgements,
    ) -> None:
        """Answers /NAME/ARGUMENT by `contents`; raises OSError for a taken port."""
        self.pool, self.grades, self.judgements = pool, grades, judgements
        pairs = {"pool": pool, "grades": grades}
        of_pairs: dict[str, Callable[[str], Content]] = {"pairs": lambda _: json.dumps(pairs)}
        self.contents = {**contents, **of_pairs}
        self.token, self.lock = secrets.token_urlsafe(24), Lock()
        page = Path(__file__).parent / "page"
        super().__init__(("127.0.0.1", port), partial(_Handler, directory=str(page)))

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints the exception of a request, except that its page was closed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(SimpleHTTPRequestHandler):
    server: JudgeServer
    timeout = 30.0

    def do_GET(self) -> None:
        if self.path in ("/", "/judge.js", "/judge.css"):
            super().do_GET()
            return
        self._answer(self._content)

    def _content(self) -> Content:
        _, name, item_id = self.path.split("/", 2)
        return self.server.contents[name](unquote(item_id))

    def do_POST(self) -> None:
        self._answer(self._judge)

    def _judge(self) -> str:
        """Adds the judgement [query id, item id, grade], or takes the last back for null."""
        length = min(int(self.headers.get("content-length", "")), _MAX_BODY_BYTES)
        asked = json.loads(self.rfile.read(length))
        pool, grades, judgements = self.server.pool, self.server.grades, self.server.judgements
        with self.server.lock:
            match asked:
                case None:
                    query_id, item_id = judgements.undo()
                    del grades[query_id][item_id]
                case [str(query_id), str(item_id), 0 | 1 as grade] if (
                    item_id in pool[query_id] and item_id not in grades[query_id]
                ):
                    # JSON's true and 1.0 match too.
                    judgements.add(query_id, item_id, int(grade))
                    grades[query_id][item_id] = int(grade)
                case _:
                    raise ValueError(
                        "this pair is judged, or not one of the golden set; reload this page"
                    )
        return ""

    def _answer(self, call: Callable[[], Content]) -> None:
        token = self.headers.get("x-golden-token", "").encode()
        if not secrets.compare_digest(token, self.server.token.encode()):
            self.close_connection = True
            self._send(HTTPStatus.FORBIDDEN, "open the address that tandem golden judge printed")
            return
        try:
            content = call()
            status = HTTPStatus.NOT_FOUND if content is None else HTTPStatus.OK
        except (TandemError, OSError, ValueError, LookupError) as error:
            status, content = HTTPStatus.CONFLICT, str(error)
        self._send(status, content or "")

    def _send(self, status: HTTPStatus, body: str | bytes) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("content-type", "text/plain" if data is not body else "image/*")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing, because paths hold ids."""
