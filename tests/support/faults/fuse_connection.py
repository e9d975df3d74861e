"""Serves a file system in user space, by speaking to /dev/fuse directly.

Needs root and /dev/fuse, but no library. The messages are those of <linux/fuse.h>, protocol 7.31.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MAX_WRITE_BYTES = 1 << 20

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_FORCE, _MNT_DETACH = 1, 2
_MS_NOSUID, _MS_NODEV = 2, 4
_MINOR_VERSION = 31
# FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_MAX_PAGES
_FLAGS = 1 << 0 | 1 << 5 | 1 << 22
_IN_HEADER = struct.Struct("<IIQQIIII")
_OUT_HEADER = struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")


class Operation(IntEnum):
    """Numbers the kernel's requests."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    BATCH_FORGET = 42
    RENAME2 = 45


# The kernel waits for no answer to these.
_UNANSWERED = {Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT}


@dataclass(frozen=True, slots=True)
class Request:
    """Describes one request of the kernel for the node of this number."""

    operation: int
    unique: int
    node_number: int
    body: bytes


class FuseConnection:
    """Holds a mounted file system whose requests this process answers."""

    def __init__(self, mount_path: Path) -> None:
        """Mounts the file system; raises OSError where that is not possible."""
        self._path = os.fsencode(mount_path)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        flags = _MS_NOSUID | _MS_NODEV
        if _LIBC.mount(b"tandem-faults", self._path, b"fuse", flags, options.encode()):
            number = ctypes.get_errno()
            os.close(self._device)
            raise OSError(number, f"cannot mount FUSE at {mount_path}: {os.strerror(number)}")

    def requests(self) -> Iterator[Request]:
        """Yields the kernel's requests, until the connection is aborted."""
        while True:
            try:
                message = os.read(self._device, MAX_WRITE_BYTES + (64 << 10))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue  # the asker was killed meanwhile
                if error.errno in (errno.ENODEV, errno.ECONNABORTED, errno.EBADF):
                    return
                raise
            _, operation, unique, node_number, *_ = _IN_HEADER.unpack_from(message)
            body = message[_IN_HEADER.size :]
            if operation == Operation.INIT:
                self._answer_init(unique, body)
            elif operation not in _UNANSWERED:
                yield Request(operation, unique, node_number, body)

    def answer(self, request: Request, body: bytes) -> None:
        """Answers a request."""
        self._send(request.unique, 0, body)

    def refuse(self, request: Request, error_number: int) -> None:
        """Answers a request with an error."""
        self._send(request.unique, -error_number, b"")

    def abort(self) -> None:
        """Ends the connection: later uses of its files raise errors, and the path is free."""
        _LIBC.umount2(self._path, _MNT_FORCE)
        _LIBC.umount2(self._path, _MNT_DETACH)

    def close(self) -> None:
        """Closes the device, once requests() has ended."""
        os.close(self._device)

    def _answer_init(self, unique: int, body: bytes) -> None:
        major, _, readahead_bytes, offered = struct.unpack_from("<IIII", body)
        init = _INIT_OUT.pack(
            major,
            _MINOR_VERSION,
            readahead_bytes,
            _FLAGS & offered,
            64,  # requests in progress in the background
            48,
            MAX_WRITE_BYTES,
            1,  # times count nanoseconds
            MAX_WRITE_BYTES // 4096,
            0,
            0,
            0,
        )
        self._send(unique, 0, init)

    def _send(self, unique: int, error: int, body: bytes) -> None:
        try:
            os.write(
                self._device, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), error, unique) + body
            )
        except OSError as failure:
            # ENOENT: the asker was killed. The others: the connection was aborted.
            if failure.errno not in (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED, errno.EBADF):
                raise
