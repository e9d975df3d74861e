"""Mounts volatile files as a file system whose power can be cut and whose syncs can fail.

It is a process (`python -m tests.support.faults.volatile_mount PATH`), because in the test's own
process a page fault on a mapped file would wait for the interpreter that it has stopped. It takes
one JSON command a line and answers each with one JSON line; power_cut_disk.py is the other end.
"""

import ctypes
import errno
import json
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.faults.fuse_connection import FuseConnection, Operation, Request
from tests.support.faults.volatile_files import (
    File,
    Folder,
    Loss,
    Node,
    Resize,
    VolatileFiles,
    Write,
)

_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_OPENED = struct.Struct("<QII")
_S_IFDIR, _S_IFREG = 0o040000, 0o100000
# Only the kernel changes anything, so it may keep what it knows.
_VALID_SECONDS = 3600
_SET_MODE, _SET_SIZE = 1 << 0, 1 << 3
_ROOM_BYTES = 1 << 40


@dataclass(slots=True)
class SyncFaults:
    """Sets the faults of syncs and writes."""

    delay_seconds: float = 0.0
    error_rate: float = 0.0
    room_bytes: int = _ROOM_BYTES


class Refused(Exception):
    """Raised to answer a request with an error number."""

    def __init__(self, error_number: int) -> None:
        super().__init__(error_number)
        self.error_number = error_number


class VolatileMount:
    """Mounts volatile files at a path, again after each power cut."""

    def __init__(self, mount_path: Path) -> None:
        """Mounts an empty disk."""
        self._path = mount_path
        self._files = VolatileFiles()
        self._lock = threading.Lock()
        self.faults = SyncFaults()
        self.rng = random.Random(0)
        self.syncs: list[tuple[float, float, bool]] = []
        self._handlers: dict[int, Callable[[Request], bytes]] = {
            Operation.LOOKUP: self._look_up,
            Operation.GETATTR: lambda request: _attributes_out(self._node(request)),
            Operation.SETATTR: self._set_attributes,
            Operation.MKDIR: self._make_folder,
            Operation.UNLINK: self._unlink,
            Operation.RMDIR: self._unlink,
            Operation.RENAME: lambda request: self._rename(request, 8),
            Operation.RENAME2: lambda request: self._rename(request, 16),
            Operation.OPEN: lambda _: _OPENED.pack(0, 0, 0),
            Operation.OPENDIR: lambda _: _OPENED.pack(0, 0, 0),
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.STATFS: lambda _: self._room(),
            Operation.RELEASE: lambda _: b"",
            Operation.RELEASEDIR: lambda _: b"",
            Operation.FLUSH: lambda _: b"",
            Operation.FSYNC: self._sync,
            Operation.FSYNCDIR: self._sync,
            Operation.READDIR: self._list,
            Operation.CREATE: self._create,
        }
        self._start()

    def cut_power(self, loss: Loss, rng: random.Random) -> None:
        """Loses unsynced writes, gives errors to users of the files, and mounts the rest again."""
        with self._lock:
            self._files.lose(loss, rng)
            # Whatever is still asked was asked after the cut: it is neither done nor answered.
            self._is_cut.set()
        self.unmount()
        self._start()

    def unmount(self) -> None:
        """Unmounts the files."""
        self._connection.abort()
        self._thread.join()
        self._connection.close()

    def _start(self) -> None:
        self._is_cut = threading.Event()
        self._connection = FuseConnection(self._path)
        self._thread = threading.Thread(target=self._serve, args=(self._connection, self._is_cut))
        self._thread.start()

    def _serve(self, connection: FuseConnection, is_cut: threading.Event) -> None:
        waiting: list[threading.Thread] = []
        for request in connection.requests():
            if self.faults.delay_seconds and request.operation == Operation.FSYNC:
                # In a thread, so that everything else continues.
                thread = threading.Thread(target=self._handle, args=(connection, is_cut, request))
                thread.start()
                waiting.append(thread)
            else:
                self._handle(connection, is_cut, request)
        for thread in waiting:
            thread.join()

    def _handle(
        self, connection: FuseConnection, is_cut: threading.Event, request: Request
    ) -> None:
        start_time = time.monotonic()
        is_sync = request.operation == Operation.FSYNC
        if is_sync and self.faults.delay_seconds:
            is_cut.wait(self.faults.delay_seconds)
        with self._lock:
            if is_cut.is_set():
                return
            try:
                handler = self._handlers.get(request.operation)
                if handler is None:
                    raise Refused(errno.ENOSYS)
                body = handler(request)
            except Refused as refused:
                if is_sync:
                    self.syncs.append((start_time, time.monotonic(), False))
                connection.refuse(request, refused.error_number)
                return
            if is_sync:
                self.syncs.append((start_time, time.monotonic(), True))
            connection.answer(request, body)

    def _node(self, request: Request) -> Node:
        try:
            return self._files.nodes[request.node_number]
        except KeyError:
            raise Refused(errno.ENOENT) from None

    def _file(self, request: Request) -> File:
        node = self._node(request)
        if not isinstance(node, File):
            raise Refused(errno.EISDIR)
        return node

    def _folder(self, request: Request) -> Folder:
        node = self._node(request)
        if not isinstance(node, Folder):
            raise Refused(errno.ENOTDIR)
        return node

    def _look_up(self, request: Request) -> bytes:
        node = self._folder(request).seen.get(_name(request.body))
        if node is None:
            raise Refused(errno.ENOENT)
        return _entry(node)

    def _set_attributes(self, request: Request) -> bytes:
        node = self._node(request)
        valid, size = struct.unpack_from("<I12xQ", request.body)
        (mode,) = struct.unpack_from("<I", request.body, 68)
        if valid & _SET_MODE:
            node.mode = mode & 0o7777
        if valid & _SET_SIZE:
            file = self._file(request)
            self._check_room(size - len(file.seen))
            file.change(Resize(size))
        return _attributes_out(node)

    def _make_folder(self, request: Request) -> bytes:
        (mode,) = struct.unpack_from("<I", request.body)
        name = _name(request.body[8:])
        return _entry(self._files.make_folder(self._folder(request), name, mode & 0o7777))

    def _create(self, request: Request) -> bytes:
        (mode,) = struct.unpack_from("<4xI", request.body)
        name = _name(request.body[16:])
        file = self._files.make_file(self._folder(request), name, mode & 0o7777)
        return _entry(file) + _OPENED.pack(0, 0, 0)

    def _unlink(self, request: Request) -> bytes:
        folder, name = self._folder(request), _name(request.body)
        node = folder.seen.get(name)
        if isinstance(node, Folder) and node.seen:
            raise Refused(errno.ENOTEMPTY)
        # The node stays: without a sync of the folder a power cut brings the name back.
        self._files.rename([(folder, name, None)])
        return b""

    def _rename(self, request: Request, header_bytes: int) -> bytes:
        (target_number,) = struct.unpack_from("<Q", request.body)
        old, new = (os.fsdecode(name) for name in request.body[header_bytes:].split(b"\0")[:2])
        folder, target = self._folder(request), self._files.nodes[target_number]
        assert isinstance(target, Folder)
        self._files.rename([(target, new, folder.seen[old]), (folder, old, None)])
        return b""

    def _read(self, request: Request) -> bytes:
        offset, size = struct.unpack_from("<8xQI", request.body)
        return bytes(self._file(request).seen[offset : offset + size])

    def _write(self, request: Request) -> bytes:
        offset, size = struct.unpack_from("<8xQI", request.body)
        file = self._file(request)
        self._check_room(offset + size - len(file.seen))
        file.change(Write(offset, request.body[40 : 40 + size]))
        return struct.pack("<II", size, 0)

    def _sync(self, request: Request) -> bytes:
        node = self._node(request)
        if isinstance(node, Folder):
            self._files.sync_folder(node)
        elif self.rng.random() < self.faults.error_rate:
            node.fail_sync()
            raise Refused(errno.EIO)
        else:
            node.sync()
        return b""

    def _list(self, request: Request) -> bytes:
        offset, size = struct.unpack_from("<8xQI", request.body)
        entries = b""
        for number, (name, node) in enumerate(list(self._folder(request).seen.items())):
            encoded = os.fsencode(name)
            kind = 4 if isinstance(node, Folder) else 8
            entry = struct.pack("<QQII", node.number, number + 1, len(encoded), kind) + encoded
            entry += bytes(-len(entry) % 8)
            if number >= offset and len(entries) + len(entry) <= size:
                entries += entry
            elif number >= offset:
                break
        return entries

    def _room(self) -> bytes:
        free_count = max(0, self.faults.room_bytes - self._files.used_bytes()) // 4096
        total_count = self.faults.room_bytes // 4096
        counts = (total_count, free_count, free_count, 1 << 20, 1 << 20)
        return struct.pack("<QQQQQIII28x", *counts, 4096, 255, 4096)

    def _check_room(self, more_bytes: int) -> None:
        if more_bytes > 0 and self._files.used_bytes() + more_bytes > self.faults.room_bytes:
            raise Refused(errno.ENOSPC)


def _name(body: bytes) -> str:
    return os.fsdecode(body.split(b"\0", 1)[0])


def _attributes(node: Node) -> bytes:
    if isinstance(node, Folder):
        size, mode = 0, _S_IFDIR | node.mode
    else:
        size, mode = len(node.seen), _S_IFREG | node.mode
    times = (0,) * 6
    return _ATTRIBUTES.pack(node.number, size, -(-size // 512), *times, mode, 1, 0, 0, 0, 4096, 0)


def _attributes_out(node: Node) -> bytes:
    return struct.pack("<QII", _VALID_SECONDS, 0, 0) + _attributes(node)


def _entry(node: Node) -> bytes:
    entry = _ENTRY.pack(node.number, 0, _VALID_SECONDS, _VALID_SECONDS, 0, 0)
    return entry + _attributes(node)


def _obey(mount: VolatileMount, command: dict[str, Any]) -> object:
    match command:
        case {"cut": loss, "seed": seed}:
            mount.cut_power(Loss(loss), random.Random(seed))
        case {"faults": faults, "seed": seed}:
            mount.rng = random.Random(seed)
            mount.faults = SyncFaults(**faults)
        case {"syncs": _}:
            syncs, mount.syncs = mount.syncs, []
            return syncs
        case _:
            raise ValueError(f"no such command: {command}")
    return None


def main(mount_path: Path) -> None:
    """Serves the mount until standard input ends."""
    # A test that is killed takes its mount with it.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    mount = VolatileMount(mount_path)
    try:
        print(json.dumps({"answer": "mounted"}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"answer": _obey(mount, json.loads(line))}), flush=True)
    finally:
        mount.unmount()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
