"""Reports whether a service lives and is ready.

- `health`: follows a canary, and reports it by grpc.health.v1
- `health_servicer`: answers Check and Watch, for many watchers
- `own_port`: asks whether the service's own gRPC port answers
- `metrics_server`: /metrics, /live and /ready over plain HTTP
"""
