"""Runs a service's process from its start to its graceful shutdown.

- `server`: `serve`: bind, warm up, serve, drain, exit
- `arguments`: a service's command line, with tables of settings and metrics
- `process`: prepares a process, whatever protocol it serves
- `service`, `service_settings`: what a service serves, and the settings that every service has
- `grpc_server`: the gRPC server, which survives odd paths
- `direct_channel`, `direct_call`: calls of a process to its own server, through its interceptors
- `attached_server`: a server of another protocol in the same process
"""
