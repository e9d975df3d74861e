"""Carries the calls of a client.

transport, async_transport   what carries them: a connection, or an engine in this process
remote, async_remote         over a connection, with repetitions
connections                  gRPC's channels and stubs
retries, refusal             which failed calls are repeated; the named error of one
server_status                the status of a stream that grpc.aio loses
trace_headers                the trace that a call is of
"""
