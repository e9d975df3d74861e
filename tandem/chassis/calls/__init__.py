"""Calls other services over gRPC.

- `channels`: opens channels, and calls through them with a deadline and the request's ids
- `rotating_channel`: a channel that follows its certificates
- `credentials`: gRPC's credentials of certificates that may change
- `status`: named errors to gRPC statuses and back
"""
