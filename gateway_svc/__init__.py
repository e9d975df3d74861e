"""Serves the public API over HTTP, and the web console; stateless, a client of the orchestrator.

__main__       wires the service and runs it
settings       its environment variables
serving        from the start to the drain, in a process of its own or the orchestrator's
http_server    uvicorn with TLS that follows its files
connection     one connection, which a slow client cannot hold
app            the operations and their routes
edge           what holds for every request: ids, hosts, origins, framing, slow readers
admission      who may call, how much is in flight, and what is logged and counted
body           reads a request's deadline, and its body within its limits
http_call      one operation, and one call of it
json_message   JSON to messages and back
upstream       the public methods of the contract, and calls of the orchestrator
faults         HTTP's own refusals, and errors as problem details (RFC 9457)
openapi        describes the operations
console_files  serves console/, the files of the web console

protocols/     Connect and gRPC-Web
rest/          plain HTTP under /v1
console/       the web console's files
api_page/      a page that shows the description, at /docs/
"""
