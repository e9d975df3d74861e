"""A line of standard input arrives whole, with a mark for half of a surrogate pair."""

import io
import json
import os
import subprocess
import sys
import threading

import pytest

from tandem.client.testing import FakeServer
from tandem_mcp.standard_input import whole_unicode


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (b'{"a": "b"}', {"a": "b"}),
        (b'{"a": "\\ud800"}', {"a": "�"}),
        (b'{"a": "x\\uDC00y\\ud83d"}', {"a": "x�y�"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"a\\udfff": [1.5, null, "\\ud83d\\ude00\\ud83d"]}', {"a�": [1.5, None, "😀�"]}),
        (b'{"a": "\\\\ud800"}', {"a": "\\ud800"}),
        (b'{"a": "\xff"}', {"a": "�"}),
        ('{"a": "é\\n"}'.encode(), {"a": "é\n"}),
    ],
)
def test_a_line_has_a_mark_for_half_of_a_pair(line: bytes, read: object) -> None:
    """A pair stays one character, and a backslash of its own is no escape."""
    found = whole_unicode(io.BytesIO(line + b'\n{"next": 1}\n')).readlines()

    assert [json.loads(each) for each in found] == [read, {"next": 1}]


def test_what_is_not_json_is_passed_on() -> None:
    """The library knows what to do with it."""
    lines = ["\\ud800\n", "\n", '{"a": "\\ud800"\n', "without an end"]

    assert whole_unicode(io.BytesIO("".join(lines).encode())).readlines() == lines


def test_a_long_line_is_whole() -> None:
    """A picture is longer than a buffer."""
    line = '{"image": "' + "A" * 300_000 + '\\ud800"}\n'

    [found] = whole_unicode(io.BytesIO(line.encode()))

    assert json.loads(found) == {"image": "A" * 300_000 + "�"}


def test_a_line_is_read_before_the_next_one_comes() -> None:
    """Its caller waits for an answer before it sends another."""
    reading, writing = os.pipe()
    found: list[str] = []
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        reader = threading.Thread(target=lambda: found.append(next(whole_unicode(source))))
        reader.start()
        sink.write(b'{"a": "\\ud800"}\n')
        reader.join(timeout=60)

    assert found == ['{"a": "�"}\n']


def test_a_call_with_half_of_a_character_is_answered() -> None:
    """Over stdio, with an error of the tool that names the argument."""
    initialize = request(
        1,
        "initialize",
        protocolVersion="2025-06-18",
        capabilities={},
        clientInfo={"name": "a", "version": "1"},
    )
    search = request(2, "tools/call", name="search_images", arguments={"query": "\ud800 cat"})
    with FakeServer() as fake:
        arguments = [sys.executable, "-m", "tandem_mcp", "--address", fake.address]
        server = subprocess.Popen(
            [*arguments, "--index", "scenes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        # Without an answer the test fails, and does not wait for ever.
        killer = threading.Timer(60, server.kill)
        killer.start()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(
                initialize + b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
            )
            server.stdin.write(search)
            server.stdin.flush()
            server.stdout.readline()
            answer = json.loads(server.stdout.readline())
        finally:
            killer.cancel()
            server.terminate()
            server.communicate()

    assert (answer["id"], answer["result"]["isError"]) == (2, True)
    assert "query has half of a character" in answer["result"]["content"][0]["text"]


def request(number: int, method: str, **parameters: object) -> bytes:
    """Returns the line of a request, in ASCII."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
    return json.dumps(message).encode() + b"\n"
