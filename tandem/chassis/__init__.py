"""What every service stands on; knows nothing of contents, embeddings or models.

    settings      environment variables into a frozen dataclass, or a start that stops
    server        `serve`: from a cold process to a drained one
    health        NOT_SERVING until warm, then whatever the canary says
    interceptors  what happens around every call, in a stated order
    status        named errors to gRPC statuses and back
    channels      calls to other services, and the time left for them
    metrics, log  what the operator sees
    request_id    the one name of a request in all of them

A service's `__main__` loads its settings, makes its parts and awaits `server.serve`.
"""
