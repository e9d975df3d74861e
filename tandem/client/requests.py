"""Says how connections behave, and what each call carries."""

import uuid

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Call the orchestrators of a name in turn, except those that are NOT_SERVING: before they are
    # warm, and from SIGTERM on, while they still answer.
    (
        "grpc.service_config",
        '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}',
    ),
    # Resolve a name again when a server leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # The default backs off up to 120 s, in which a restarted server would go unnoticed.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Notices a dead connection after 20 s, also in a stream without a deadline. A slow server still
    # answers pings, in gRPC's own threads; a slow connection has 10 s. Our servers accept one ping
    # a second.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_send_message_length", 64 * 2**20),
    ("grpc.max_receive_message_length", 64 * 2**20),
)


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Returns metadata with a new request id, which every service logs."""
    return (("x-request-id", uuid.uuid4().hex),)
