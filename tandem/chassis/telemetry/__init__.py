"""Reports what a process does: log, metrics and traces. Never content, never tokens.

- `log`, `withheld`: one JSON object a line, and what of an exception is never in it
- `plain_structlog`: imports structlog quickly
- `metrics`, `model_metrics`: what Prometheus scrapes; of it, the served model and shard
- `tracing`: W3C trace context and OpenTelemetry's spans
- `request_id`: the id of one request in every service
"""
