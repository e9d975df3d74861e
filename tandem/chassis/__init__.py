"""Provides what every service stands on. Knows nothing of contents, embeddings or models.

- `settings`: environment variables in a frozen dataclass, with named faults
- `tls`, `tls_proxy`: certificates that may change while a process runs; TLS in front of Triton
- `process`: memory, threads and open files of a process
- `telemetry`: log, metrics and traces, and what of a request they name
- `access`: who may call what, and how often
- `capacity`: how callers share places, threads and caches
- `calls`: channels to other services, and named errors as gRPC statuses
- `health`: grpc.health.v1, and the server of /metrics, /live and /ready
- `interceptors`: what runs around every call, in a fixed order
- `serve`: a process from its start to its graceful shutdown

`settings`, `tls`, `process`, `telemetry`, `access` and `capacity` import no gRPC, so that a search
can use them without a service.

A service's `__main__` loads its settings, builds its parts and awaits `serve.server.serve`.
"""
