"""Serves as much of S3 as a backup calls, from memory, and fails as a test asks.

obstore signs its requests; nothing here checks that.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_PAGE_COUNT = 3  # so that every listing has several pages
_DATE = "Sun, 01 Nov 2026 00:00:00 GMT"


@dataclass
class Reply:
    """What the server answers; a fault changes it."""

    status: int = 200
    body: bytes = b""
    etag: str = ""
    length: int | None = None
    """What Content-Length says, if it lies."""


Fault = Callable[[str, str, Reply], Reply]
"""Gets method, key and the right answer, and returns the one to send; it may sleep or wait."""


def no_fault(method: str, key: str, reply: Reply) -> Reply:
    return reply


def as_sent(key: str, data: bytes) -> bytes:
    return data


def refuse_none(method: str, key: str) -> int:
    return 0


@dataclass
class FaultyS3:
    """A running server: its URL, what it stores, and what it was asked."""

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    fault: Fault = no_fault
    stores_as: Callable[[str, bytes], bytes] = as_sent
    """What is stored of a sent object."""
    refuses: Callable[[str, str], int] = refuse_none
    """The status of a request that is refused before anything is done; 0 for none."""
    calls: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """Starts a server on a free port."""
    state = FaultyS3()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            stored = state.stores_as(self._key, data)
            with lock:
                if self.headers.get("If-None-Match") == "*" and self._key in state.objects:
                    self._send(Reply(412))
                    return
                if self._is_refused():
                    return
                state.objects[self._key] = stored
            self._send(Reply(etag=_etag(data)))

        def do_GET(self) -> None:
            if self._is_refused():
                return
            query = parse_qs(urlsplit(self.path).query)
            if "list-type" in query:
                self._send(Reply(body=self._listing(query).encode()))
            elif (data := state.objects.get(self._key)) is None:
                self._send(Reply(404))
            else:
                self._send(Reply(body=data, etag=_etag(data)))

        def do_POST(self) -> None:
            """Deletes several objects."""
            root = ElementTree.fromstring(self.rfile.read(int(self.headers["Content-Length"])))
            if self._is_refused():
                return
            keys = [each.text or "" for each in root.iter() if each.tag.endswith("Key")]
            for key in keys:
                state.objects.pop(key, None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._send(Reply(body=f"<DeleteResult>{deleted}</DeleteResult>".encode()))

        def do_DELETE(self) -> None:
            state.objects.pop(self._key, None)
            self._send(Reply(204))

        @property
        def _key(self) -> str:
            return unquote(urlsplit(self.path).path).split("/", 2)[2]

        def _is_refused(self) -> bool:
            if status := state.refuses(self.command, self._key if self.path.count("/") > 1 else ""):
                self._send(Reply(status))
            return bool(status)

        def _listing(self, query: dict[str, list[str]]) -> str:
            prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
            keys = sorted(key for key in state.objects if key.startswith(prefix) and key > after)
            entries = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(state.objects[key])}</Size>"
                f"<LastModified>2026-11-01T00:00:00.000Z</LastModified><ETag>e</ETag></Contents>"
                for key in keys[:_PAGE_COUNT]
            )
            more = (
                f"<IsTruncated>true</IsTruncated>"
                f"<NextContinuationToken>{escape(keys[_PAGE_COUNT - 1])}</NextContinuationToken>"
                if len(keys) > _PAGE_COUNT
                else "<IsTruncated>false</IsTruncated>"
            )
            return f"<ListBucketResult>{entries}{more}</ListBucketResult>"

        def _send(self, reply: Reply) -> None:
            state.calls.append((self.command, self.path))
            reply = state.fault(self.command, self.path, reply)
            self.send_response(reply.status)
            self.send_header("Content-Length", str(reply.length or len(reply.body)))
            self.send_header("Last-Modified", _DATE)
            self.send_header("ETag", reply.etag or '"none"')
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.length:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _etag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'
