"""`tandem health`: prints a service's health, for probes and people."""

from typing import Annotated

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.cli.options import DEFAULT_ADDRESS, nobody_there
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.client import Access


@with_json
def health(
    address: Annotated[
        str, typer.Argument(help="host:port of any service", envvar="TANDEM_ADDRESS")
    ] = DEFAULT_ADDRESS,
    service: Annotated[str, '"" for readiness, "liveness" for the process only'] = "",
    timeout: Annotated[float, "seconds to wait for the answer"] = 2.0,
) -> None:
    """Check that a service is ready.

    Prints SERVING and exits 0, or prints the status or error and exits 1.

    Uses TANDEM_AUTHORITY_FILE, _CERTIFICATE_FILE and _KEY_FILE like every command, but no token,
    because health needs none.
    """
    # gRPC's default options, because the SDK's channel calls only servers that are serving.
    with Access.from_environment().open_channel(address, options=()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            response = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.RpcError as error:
            answer({"address": address, "status": error.code().name})
            why = nobody_there(address) or error.details()
            errors.print(f"{address}: {error.code().name} {why}")
            raise typer.Exit(1) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    answer({"address": address, "status": status})
    if status != "SERVING":
        errors.print(f"{address}: {status}")
        raise typer.Exit(1)
    out.print(status)
