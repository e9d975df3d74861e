"""Provides what every service stands on. Knows nothing of contents, embeddings or models.

    server                      `serve`: a process from start to graceful shutdown
    process                     what it does before it serves, whatever protocol it serves
    settings, service_settings  environment variables in a frozen dataclass, with named faults
    grpc_server, channels       the server that survives odd paths; calls to other services
    direct_channel, direct_call calls of a process to its own server, through its interceptors
    attached_server             what a second server in a process has to do
    interceptors                what runs around every call, in a fixed order
    health, health_servicer     grpc.health.v1, from a canary
    http_door, own_port         /metrics, /live and /ready; whether the gRPC port answers
    guard, tokens, token_bucket who may call what, and how often
    tls, rotating_channel       certificates that may change while a process runs
    tls_proxy                   TLS for a server that cannot reload certificates
    admission, places           limits on what is in flight, and retry delays
    request_scanner             counts a request's fields before protobuf parses them
    side_thread                 converts large requests outside of the event loop
    stream_watch                idle streams
    status                      named errors to gRPC statuses and back
    tracing, request_id, headers what a call carries from service to service
    metrics, cache_metrics      what Prometheus scrapes
    log, withheld, exposure     what is logged, what never is, and warnings at start
    single_flight_cache         computes each missing value once
    allocator, started_threads  memory and threads of a process
    file_limit                  its open files, and what is logged when they run out
    side_doors                  turns reflection and metrics off

A service's `__main__` loads its settings, builds its parts and awaits `server.serve`.
"""
