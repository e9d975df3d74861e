"""Measures what strangers' unfinished health checks make an orchestrator hold.

    python -m benchmarks.runs.hostile_probes [CONNECTIONS] [STREAMS] [SECONDS]

Each stream announces a message of 60 MiB and sends all of it but its last byte, as fast as flow
control lets it; another takes the place of one that the service ends.
"""

import socket
import struct
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from tests.support.chassis.raw_http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RESET,
    SETTINGS,
    WINDOW,
    block,
    call_headers,
    frame,
    opened,
)

MESSAGE_BYTES = 60 << 20
_FRAME_BYTES = 16_384
_BUFFER_BYTES = 1 << 20
_INITIAL_WINDOW_SETTING = 4
_CALL = block(call_headers(b"/grpc.health.v1.Health/Check"))


class Stranger:
    """One connection whose health checks never end."""

    def __init__(self, port: int, stream_count: int) -> None:
        self._socket: socket.socket = opened(port)
        self._socket.setblocking(False)
        self._received = b""
        self._unsent = bytearray()
        self._window = self._initial_window = 65_535
        self._stream_windows: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._next_stream = 1
        self.sent_bytes = 0
        self.ended_count = 0
        for _ in range(stream_count):
            self._start_stream()

    def turn(self) -> None:
        """Reads and sends what it can without waiting."""
        try:
            while part := self._socket.recv(_BUFFER_BYTES):
                self._received += part
        except BlockingIOError:
            pass
        self._read_frames()
        for stream in list(self._left):
            self._fill(stream)
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[:_BUFFER_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            pass

    def _start_stream(self) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._unsent += frame(HEADERS, END_HEADERS, stream, _CALL)
        self._stream_windows[stream], self._left[stream] = 0, MESSAGE_BYTES + 4

    def _fill(self, stream: int) -> None:
        while len(self._unsent) < _BUFFER_BYTES:
            window = self._initial_window + self._stream_windows[stream]
            size = min(_FRAME_BYTES, self._left[stream], self._window, window)
            if size < 5:
                return
            is_first = self._left[stream] == MESSAGE_BYTES + 4
            head = struct.pack("!BI", 0, MESSAGE_BYTES) if is_first else b""
            self._unsent += frame(DATA, 0, stream, head + bytes(size - len(head)))
            self._left[stream] -= size
            self._window -= size
            self._stream_windows[stream] -= size
            self.sent_bytes += size

    def _read_frames(self) -> None:
        while len(self._received) >= 9:
            size = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + size:
                return
            kind, flags = self._received[3], self._received[4]
            stream = int.from_bytes(self._received[5:9], "big")
            payload = self._received[9 : 9 + size]
            self._received = self._received[9 + size :]
            if kind == SETTINGS and not flags & ACK:
                for setting, value in struct.iter_unpack("!HI", payload):
                    if setting == _INITIAL_WINDOW_SETTING:
                        self._initial_window = value
                self._unsent += frame(SETTINGS, ACK, 0)
            elif kind == PING and not flags & ACK:
                self._unsent += frame(PING, ACK, 0, payload)
            elif kind == WINDOW and stream == 0:
                self._window += int.from_bytes(payload, "big")
            elif kind == WINDOW and stream in self._stream_windows:
                self._stream_windows[stream] += int.from_bytes(payload, "big")
            elif stream in self._left and (kind == RESET or flags & END_STREAM):
                del self._left[stream], self._stream_windows[stream]
                self.ended_count += 1
                self._start_stream()


def resident_mib(pid: int) -> int:
    """Returns what a process holds."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) // 1024


def main(connection_count: int = 8, stream_count: int = 32, seconds: int = 9) -> None:
    """Prints what the service held at most, and what was sent meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.toml"
        digest = sha256(b"token").hexdigest()
        tokens.write_text(
            f'[tokens.someone]\nsha256 = "{digest}"\nscopes = ["search"]\nindexes = ["*"]\n'
        )
        door = subprocess.Popen(
            [sys.executable, "-m", "tests.support.security.hostile_door", str(tokens)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert door.stdout is not None
            port = int(door.stdout.readline().rpartition(":")[2])
            before = most = resident_mib(door.pid)
            strangers = [Stranger(port, stream_count) for _ in range(connection_count)]
            end_time = time.monotonic() + seconds
            while time.monotonic() < end_time:
                for stranger in strangers:
                    stranger.turn()
                most = max(most, resident_mib(door.pid))
                time.sleep(0.001)
            sent_mib = sum(stranger.sent_bytes for stranger in strangers) >> 20
            ended_count = sum(stranger.ended_count for stranger in strangers)
            print(
                f"{connection_count} connections of {stream_count} streams: {before} MiB before, "
                f"{most} at most; {sent_mib} MiB sent, {ended_count} calls ended in {seconds} s"
            )
        finally:
            door.kill()
            door.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
