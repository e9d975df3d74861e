"""Calls other services over gRPC.

- `channels`: opens channels, and calls through them with a deadline and the request's ids
- `hung_peer`: gives up a call to a process that hangs
- `rotating_channel`: a channel that follows its certificates
- `credentials`: gRPC's credentials of certificates that may change
- `status`: named errors to gRPC statuses and back
"""
