"""Calls to other services: how a channel behaves, and how long a call may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from tandem.chassis.health import LIVENESS
from tandem.chassis.request_id import REQUEST_ID_KEY, current_request_id
from tandem.chassis.rotating_channel import RotatingChannel
from tandem.chassis.status import error_from_rpc
from tandem.chassis.tls import Certificates, Identity, Rotation, channel_credentials
from tandem.chassis.tracing import current_trace
from tandem.contract.limits import MAX_MESSAGE_BYTES
from tandem.errors import DeadlineExceeded

Response = TypeVar("Response")

MAX_CONNECTION_CALL_COUNT = 256

_MESSAGE_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

_SERVICE_CONFIG = {
    # A name that stands for several replicas is called on each in turn; the default stays with one.
    "loadBalancingConfig": [{"round_robin": {}}],
    # One that leaves says so before it refuses calls: those that reach it as it closes are lost
    # (CANCELLED, or no answer at all). Not the health of the whole: what is not well still answers.
    "healthCheckConfig": {"serviceName": LIVENESS},
}

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_MESSAGE_OPTIONS,
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # Whoever was added to a name is looked for when another leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # A peer that vanished without a word is noticed in about 3 s, not at each call's deadline.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 1_000),
    # The same for one that still acknowledges TCP but does no more: a stopped process, for example.
    # Keepalive waits while another ping is under way, and that one is given a minute by default.
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # The defaults back off up to 120 s: a restarted peer would stay unseen for that long.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Services call one another and never through a proxy, whatever the machine's variables say.
    ("grpc.enable_http_proxy", 0),
    # Shared with others of this process, a new channel would start with their refused connections.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_MESSAGE_OPTIONS,
    # The default takes such pings, one each 2 s, for an attack and drops the connection.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Callers then look the name up again, and find replicas that were added since. Calls under way
    # end on the old connection, however long they take.
    ("grpc.max_connection_age_ms", 300_000),
    # Or two services given one port by mistake would share its calls at random.
    ("grpc.so_reuseport", 0),
    # A connection's calls, those that say nothing included; further ones wait at their sender.
    ("grpc.max_concurrent_streams", MAX_CONNECTION_CALL_COUNT),
    # Or calls that are answered and not yet tidied up would count as well, and those that their
    # sender then believes to have room for come back as UNAVAILABLE.
    ("grpc.http.overload_protection", 0),
    # Or a stream's window grows from 64 KiB to 16 MiB, which its caller may fill unread.
    ("grpc.http2.bdp_probe", 0),
    # None but "identity": of 65 kB on the wire a compressed request makes 64 MiB. Answers are not
    # compressed either. Whoever sends such a request is told UNIMPLEMENTED, and what is taken.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # A caller that vanished without a word holds its streams for 20 s, not until its connection is
    # too old. One whose line is slow has 10 s to answer a ping, beside all else that it carries.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def open_channel(address: str, identity: Identity | None = None) -> grpc.aio.Channel:
    """Returns a channel to `host:port`; connects with the first call. Needs a running loop.

    With an identity both sides show certificates, and the channel follows the files of it.
    """
    if identity is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)

    def open_with(certificates: Certificates) -> grpc.aio.Channel:
        credentials = channel_credentials(certificates)
        return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)

    return RotatingChannel(Rotation(identity), open_with)


def deadline_seconds(context: grpc.aio.ServicerContext, default: float) -> float:
    """Returns how long the caller of `context` still waits; `default` where they set no deadline.

    Raises `DeadlineExceeded` where nothing is left, so that no work starts for nobody.
    """
    remaining: float | None = context.time_remaining()
    if remaining is None:
        return default
    if remaining <= 0:
        raise DeadlineExceeded(what="the call before this work began")
    return remaining


async def call(
    method: Callable[..., Awaitable[Response]],
    request: object,
    *,
    service: str,
    timeout_seconds: float,
) -> Response:
    """Calls a unary method of `service` under the current request's id; raises `TandemError`."""
    request_id = current_request_id()
    metadata = [(REQUEST_ID_KEY, request_id)] if request_id else []
    if (trace := current_trace()) is not None:
        metadata += trace.headers.items()
    try:
        return await _answer(method(request, timeout=timeout_seconds, metadata=tuple(metadata)))
    except grpc.aio.AioRpcError as rpc_error:
        raise error_from_rpc(rpc_error, service) from rpc_error


async def _answer(call: Awaitable[Response]) -> Response:
    """Waits for a call; cancelled, it ends the call at the peer, and not what reads its end.

    grpc.aio frees what a call holds when its end is read. Where that is cancelled too, as it is by
    `cancel()` and by a plain await, each cancelled call leaves 0.8 kB behind for good
    (grpc/grpc#43360, open as of 1.85).
    """
    reading = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        # Core's own cancel, for which grpc.aio has no public name.
        core = getattr(call, "_cython_call", None)
        if core is None:
            reading.cancel()
        else:
            core.cancel("the caller gave up")
        raise
