"""Finds mistakes before `tandem up` starts anything, and names their cause."""

import errno
import importlib.util
import socket
from collections.abc import Iterable
from pathlib import Path

from tandem.installation import PackageMissing
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.stack.ports import HOST, Ports
from tandem.stack.start_refused import StartRefused
from tandem.triton.server import TritonServer, TritonUnavailable

DEFAULT_SHARD_COUNT = 2
_GATEWAY_PACKAGES = ("starlette", "uvicorn")


def check_machine(checkpoint: Path) -> None:
    """Raises StartRefused if Triton or a service cannot run here, or the checkpoint is invalid."""
    check_torch()
    try:
        TritonServer.check_installed()
    except TritonUnavailable as error:
        raise StartRefused(str(error)) from None
    if not checkpoint.is_dir():
        what = "is a file" if checkpoint.exists() else "is not there"
        raise StartRefused(
            f"{checkpoint} {what}: --checkpoint is a folder that tandem train wrote; without it "
            "the shipped model is served"
        )
    CheckpointFiles.read(checkpoint)


def check_torch() -> None:
    """Raises PackageMissing without torch, which services or an export import and this may not."""
    if importlib.util.find_spec("torch") is None:
        raise PackageMissing("tandem up", "torch")


def precision_note(precision: Precision | None) -> str | None:
    """Returns a warning about a precision that this CPU only emulates."""
    if precision is Precision.BF16 and native_precision() is not Precision.BF16:
        return "this CPU has no bf16 of its own: --precision fp32 answers sooner"
    return None


def shard_count(requested: int | None, stored: int | None, data: Path) -> int:
    """Returns the shard count; raises StartRefused if the folder has another one."""
    if requested is None or stored is None or requested == stored:
        return requested or stored or DEFAULT_SHARD_COUNT
    raise StartRefused(
        f"{data} has {stored} shard{'s' if stored > 1 else ''}, not {requested}: give --shards "
        f"{stored}, or another folder by --data"
    )


def has_gateway() -> bool:
    """Returns whether gateway_svc can run here; HTTP is an extra."""
    return all(importlib.util.find_spec(name) is not None for name in _GATEWAY_PACKAGES)


def check_ports(ports: Ports, others: Iterable[tuple[str, int]] = ()) -> None:
    """Raises StartRefused, which names each port in use."""
    named = [
        *([("gateway", ports.gateway)] if has_gateway() else []),
        ("orchestrator", ports.orchestrator),
        ("encoder", ports.encoder),
        ("triton", ports.triton),
        *((f"index-{number}", port) for number, port in enumerate(ports.index)),
        *((f"rerank-{number}", port) for number, port in enumerate(ports.rerank)),
    ]
    named += [(f"{name}'s metrics", ports.metrics[port]) for name, port in named]
    check_free((*named, *others))


def check_free(named: Iterable[tuple[str, int]]) -> None:
    """Raises StartRefused, which names each port in use and the process that needs it."""
    taken = [f"{port} ({name})" for name, port in named if _is_taken(port)]
    if taken:
        raise StartRefused(
            f"in use already on {HOST}: port {', '.join(taken)}; stop the process that uses it, "
            "such as another tandem up, or give --free-ports"
        )


def _is_taken(port: int) -> bool:
    with socket.socket() as listener:
        # As servers do, so that closing connections of an earlier server do not matter.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False
