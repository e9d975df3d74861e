"""The API of a remote cross-encoder, right or sabotaged, on a free port of the loopback."""

import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Sabotage(StrEnum):
    """Lists what may be wrong with an API; SORTED is right, as most of them answer."""

    NONE = "none"
    SORTED = "sorted"
    SLOW = "slow"
    FEWER = "one result fewer"
    TWICE = "one index twice"
    SWAPPED = "wrong order"
    FLAT = "flat"
    BATCH_DEPENDENT = "scores that depend on the batch"
    NAN = "NaN"
    LOGITS = "logits"
    WORDS = "a word as a score"
    GARBAGE = "no JSON"
    ENDLESS = "endless"
    CUT = "cut off"
    ZIPPED = "compressed, though asked not to"
    DRIP = "a byte now and then"
    DIGITS = "an integer of 400 digits as a score"
    FAR = "an index of 400 digits"
    LIST = "a list at the top"
    REDIRECT = "redirect"
    ERROR_500 = "500"
    BUSY = "429"
    REFUSED = "401"


@dataclass(slots=True)
class RemoteApi:
    """What was asked of the API, and what it does from now on."""

    sabotage: Sabotage = Sabotage.SORTED
    shape: str = "vllm-rerank"
    address: str = ""
    retry_after: str = "2"
    """Of BUSY."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """Set at the first request."""
    hang: threading.Event = field(default_factory=threading.Event)
    """Ends the waits of SLOW and DRIP."""

    @property
    def url(self) -> str:
        """The whole address of the method."""
        return f"{self.address}{'/score' if self.shape == 'vllm-score' else '/v1/rerank'}"

    @property
    def document_counts(self) -> list[int]:
        """The number of documents of each request."""
        return [len(self._read(each)[1]) for each in self.requests]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the scores of a request as this shape has them."""
        query, documents = self._read(request)
        scores = [probability(query, each) for each in documents]
        if self.sabotage is Sabotage.FLAT:
            scores = [0.5] * len(scores)
        if self.sabotage is Sabotage.BATCH_DEPENDENT:
            scores = [score / len(scores) for score in scores]
        odd = {
            Sabotage.NAN: float("nan"),
            Sabotage.WORDS: "high",
            Sabotage.LOGITS: -3.5,
            Sabotage.DIGITS: 10**400,
        }
        values: list[Any] = [odd.get(self.sabotage, score) for score in scores]
        if self.sabotage is Sabotage.SWAPPED:
            values.reverse()
        name = "score" if self.shape == "vllm-score" else "relevance_score"
        results = [{"index": index, name: value} for index, value in enumerate(values)]
        if self.sabotage is Sabotage.TWICE:
            results[-1]["index"] = 0
        elif self.sabotage is not Sabotage.NONE:
            results.sort(key=lambda result: -result[name] if result[name] != "high" else 0)
        if self.sabotage is Sabotage.FEWER:
            results.pop()
        if self.sabotage is Sabotage.FAR:
            results[0]["index"] = 10**400
        return {"model": request["model"], "data" if name == "score" else "results": results}

    def _read(self, request: dict[str, Any]) -> tuple[str, list[str]]:
        if self.shape == "vllm-score":
            query, documents = request["text_1"], request["text_2"]
        else:
            query, documents = request["query"], request["documents"]
            assert request["top_n"] == len(_parts(documents))
        [query] = _parts(query) if isinstance(query, dict) else [query]
        return str(query), _parts(documents)


def probability(query: str, document: str) -> float:
    """Returns a score of 0.05 to 0.95 that is the pair's alone."""
    digest = hashlib.sha256(f"{query}\0{document}".encode()).digest()
    return 0.05 + 0.9 * digest[0] / 255


def _parts(documents: Any) -> list[str]:
    """Returns each document's text or data URI, from any shape."""
    if isinstance(documents, dict):
        documents = documents.get("content", [documents])
    return [_part(each) for each in documents]


def _part(document: Any) -> str:
    if isinstance(document, str):
        return document
    if document.get("type") == "image_url":
        return str(document["image_url"]["url"])
    return str(document.get("image") or document["text"])


@contextmanager
def remote_api(
    sabotage: Sabotage = Sabotage.SORTED,
    shape: str = "vllm-rerank",
    tls: ssl.SSLContext | None = None,
) -> Iterator[RemoteApi]:
    """Serves the API in a thread."""
    api = RemoteApi(sabotage, shape)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.requests.append(body)
            api.headers.append(dict(self.headers))
            api.asked.set()
            match api.sabotage:
                case Sabotage.SLOW:
                    api.hang.wait(20)
                    self.close_connection = True
                case Sabotage.ERROR_500:
                    self._send(500, b"{}")
                case Sabotage.BUSY:
                    self._send(429, b"{}", {"Retry-After": api.retry_after})
                case Sabotage.REFUSED:
                    self._send(401, b"{}")
                case Sabotage.REDIRECT:
                    self._send(307, b"", {"Location": api.url})
                case Sabotage.GARBAGE:
                    self._send(200, b"<html>")
                case Sabotage.ENDLESS:
                    self._send(200, b" " * (5 << 20))
                case Sabotage.LIST:
                    self._send(200, json.dumps([api.answer(body)]).encode())
                case Sabotage.ZIPPED:
                    zipped = gzip.compress(b" " * (64 << 20), compresslevel=1)
                    self._send(200, zipped, {"Content-Encoding": "gzip"})
                case Sabotage.DRIP:
                    self._send(200, b"", {"Content-Length": "1000000"})
                    while not api.hang.wait(0.01) and self._write(b" "):
                        pass
                case Sabotage.CUT:
                    self._send(200, b"{}", {"Content-Length": "1000"})
                    self.close_connection = True
                case _:
                    self._send(200, json.dumps(api.answer(body)).encode())

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self._write(body)

        def _write(self, body: bytes) -> bool:
            try:
                self.wfile.write(body)
                return True
            except OSError:  # The client had enough.
                self.close_connection = True
                return False

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    api.address = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
