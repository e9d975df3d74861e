"""Serves the public API over HTTP, and the web console; stateless, a client of the orchestrator.

__main__       wires the service and runs it
settings       its environment variables
serving        the process, from its start to its drain
attached       the same in the orchestrator's process
http_server    uvicorn with TLS that follows its files
connection     one connection, which a slow client cannot hold
app            the routes
edge           what holds for every request: ids, hosts, origins, framing, slow readers
admission      who may call, and how much is in flight
http_call      one call, and what an endpoint is
observed       traces, logs and metrics of calls
body           reads a request's body within its limits
methods        the public methods of the contract
upstream       calls the orchestrator
faults         HTTP's own refusals, and the status of each named error
problem        errors as problem details (RFC 9457)
json_message   JSON to messages and back
console_files  serves console/, the files of the web console

protocols/     Connect and gRPC-Web
rest/          plain HTTP under /v1
openapi/       describes both
console/       the web console's files
api_page/      a page that shows the description, at /docs/
"""
