"""Runs a service's process from its start to its graceful shutdown.

- `server`: `serve`: bind, warm up, serve, drain, exit
- `arguments`: a service's command line, with tables of settings and metrics
- `process`: prepares a process, whatever protocol it serves
- `service`: what a service serves, and the settings that every service has
- `grpc_server`: the gRPC server, which survives odd paths
- `direct_channel`: calls of a process to its own server, through its interceptors
"""
