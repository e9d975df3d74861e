"""Serves the page for judging on loopback, to a browser that knows the token.

The token is in the address after "#", which no other page can read, and travels in a header that
other pages may not send. Names that resolve to this machine are refused too.
"""

import json
import secrets
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
    "cross-origin-resource-policy": "same-origin",
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


class _Handler(SimpleHTTPRequestHandler):
    server: JudgeServer
    timeout = 30.0

    def do_GET(self) -> None:
        if self.path in ("/", "/judge.js", "/judge.css") and self._is_ours():
            super().do_GET()
            return
        _, name, *rest = self.path.split("/", 2)
        self._answer(lambda: self.server.contents[name](unquote(rest[0])))

    def do_POST(self) -> None:
        self._answer(self._judge)

    def _judge(self) -> str:
        """Adds the judgement [query id, item id, grade], or takes the last back for null."""
        length = min(int(self.headers["content-length"]), _MAX_BODY_BYTES)
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
                    judgements.add(query_id, item_id, grade)
                    grades[query_id][item_id] = grade
                case _:
                    raise ValueError(
                        "this pair is judged, or not one of the golden set; reload this page"
                    )
        return ""

    def _answer(self, call: Callable[[], Content]) -> None:
        token = self.headers.get("x-golden-token", "").encode()
        if not self._is_ours() or not secrets.compare_digest(token, self.server.token.encode()):
            self.close_connection = True
            self._send(HTTPStatus.FORBIDDEN, "open the address that tandem golden judge printed")
            return
        try:
            content = call()
            self._send(HTTPStatus.NOT_FOUND if content is None else HTTPStatus.OK, content or "")
        except (TandemError, OSError, ValueError, LookupError) as error:
            self._send(HTTPStatus.CONFLICT, str(error))

    def _is_ours(self) -> bool:
        port = self.server.server_port
        return self.headers.get("host") in (f"127.0.0.1:{port}", f"localhost:{port}")

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
