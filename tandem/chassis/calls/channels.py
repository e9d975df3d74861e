"""Opens channels to other services, and calls them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import grpc

from tandem.chassis.access.callers import CALLER_KEY, asking_caller
from tandem.chassis.calls.credentials import channel_credentials
from tandem.chassis.calls.rotating_channel import RotatingChannel
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.health.health import LIVENESS
from tandem.chassis.telemetry.request_id import REQUEST_ID_KEY, current_request_id
from tandem.chassis.telemetry.tracing import current_trace
from tandem.chassis.tls import Certificates, Identity, Rotation
from tandem.contract.limits import MAX_MESSAGE_BYTES

Response = TypeVar("Response")

MAX_CONNECTION_CALL_COUNT = 256

_MESSAGE_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

_SERVICE_CONFIG = {
    # Call the replicas of a name in turn; the default stays with one.
    "loadBalancingConfig": [{"round_robin": {}}],
    # A replica that stops turns unhealthy before it refuses calls; calls that reach it as it closes
    # are lost (CANCELLED, or no answer). Not the name "": an unready service still answers.
    "healthCheckConfig": {"serviceName": LIVENESS},
}

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_MESSAGE_OPTIONS,
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # Resolve a name again when a replica leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Notice a peer that vanished in about 3 s, not at each call's deadline.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 1_000),
    # The same for a peer that only acknowledges TCP, such as a stopped process. Keepalive waits
    # while another ping is in flight, and that ping has a minute by default.
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # The default backs off up to 120 s, in which a restarted peer would go unnoticed.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Services never call each other through a proxy, whatever the environment says.
    ("grpc.enable_http_proxy", 0),
    # With a shared pool, a new channel would start with the refused connections of others.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_MESSAGE_OPTIONS,
    # The default treats a ping every 2 s as an attack and drops the connection.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients then resolve the name again and find new replicas. Calls in flight finish on the old
    # connection.
    ("grpc.max_connection_age_ms", 300_000),
    # Two services configured with one port would otherwise share its calls at random.
    ("grpc.so_reuseport", 0),
    # Calls of one connection, idle ones included; further ones wait at the client. gRPC's overload
    # protection also counts calls that are answered or reset and not yet cleaned up, and refuses
    # more (decision 40); the SDK makes half as many at once.
    ("grpc.max_concurrent_streams", MAX_CONNECTION_CALL_COUNT),
    # gRPC ends calls that wait for a method as CANCELLED, above 3,000 all and, by default, above
    # 1,000 some of them, of any caller.
    ("grpc.server.max_pending_requests", 3_000),
    # Otherwise a stream's window grows from 64 KiB to 16 MiB, which a caller may fill unread.
    ("grpc.http2.bdp_probe", 0),
    # Only "identity": a compressed request of 65 kB can inflate to 64 MiB. gRPC answers it with
    # UNIMPLEMENTED and the accepted encodings. Answers are not compressed either.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # A caller that vanished holds its streams for 20 s, not until its connection is too old. A slow
    # connection has 10 s to answer a ping.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def open_channel(
    address: str,
    identity: Identity | None = None,
    options: Sequence[tuple[str, Any]] = CHANNEL_OPTIONS,
) -> grpc.aio.Channel:
    """Returns a channel to `host:port`, which connects with the first call.

    Needs a running event loop. With an identity, both sides present certificates, and the channel
    reloads its files when they change.
    """
    if identity is None:
        return grpc.aio.insecure_channel(address, options=options)

    def open_with(certificates: Certificates) -> grpc.aio.Channel:
        credentials = channel_credentials(certificates)
        return grpc.aio.secure_channel(address, credentials, options=options)

    return cast("grpc.aio.Channel", RotatingChannel(Rotation(identity), open_with))


async def call(
    method: Callable[..., Awaitable[Response]],
    request: object,
    *,
    service: str,
    timeout_seconds: float,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Calls a unary method of `service` with the current request id; raises `TandemError`.

    `headers` are sent as well.
    """
    metadata = call_metadata(headers)
    try:
        return await _answer(method(request, timeout=timeout_seconds, metadata=metadata))
    except grpc.aio.AioRpcError as rpc_error:
        raise error_from_rpc(rpc_error, service) from rpc_error


def call_metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns `headers` with the current request id, caller and trace, for another service."""
    metadata = dict(headers)
    if caller := asking_caller():
        metadata[CALLER_KEY] = caller
    if request_id := current_request_id():
        metadata[REQUEST_ID_KEY] = request_id
    if (trace := current_trace()) is not None:
        metadata |= trace.headers
    return tuple(metadata.items())


async def _answer(call: Awaitable[Response]) -> Response:
    """Awaits a call; if cancelled, cancels the call at the peer but still reads its end.

    grpc.aio frees a call when its end is read. `cancel()` and a plain await cancel that read too,
    and then each cancelled call leaks 0.8 kB (grpc/grpc#43360, open as of 1.85). A call in this
    process is a coroutine, which ends with its caller.
    """
    if asyncio.iscoroutine(call):
        answer: Response = await call
        return answer
    # grpc.aio reads the call in a task of its own; another task around it would cost more than
    # everything else that `call` does.
    own = getattr(call, "_invocation_task", None)
    reading = asyncio.ensure_future(call) if own is None else own
    try:
        read = await asyncio.shield(reading)
        return read if own is None else await call
    except asyncio.CancelledError:
        # Core's cancel, which grpc.aio does not expose.
        core = getattr(call, "_cython_call", None)
        if core is None:
            reading.cancel()
        else:
            core.cancel("the caller gave up")
        raise
