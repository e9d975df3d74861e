"""`tandem up`: everything on this machine, until Ctrl-C."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tandem.cli.console import errors, out
from tandem.cli.stack import LocalStack, Ports, StackFailed
from tandem.cli.triton_watch import TritonWatch
from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.triton_server import TritonUnavailable
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.fresh_export import export_if_stale

DATA = Annotated[Path, typer.Option(help="folder of item stores and logs")]
REPOSITORY = Annotated[Path, typer.Option(help="Triton's model repository")]


def up(
    data: DATA = Path(".tandem"),
    model_repository: REPOSITORY = Path("model_repository"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="checkpoint to serve; the shipped one unless given")
    ] = None,
    shards: Annotated[int, typer.Option(help="index shards", min=1, max=8)] = 2,
    precision: Annotated[
        Precision | None,
        typer.Option(help="of the models; unset keeps an export's own, else takes this CPU's best"),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="take any free ports, not the documented ones")
    ] = False,
    caches: Annotated[
        bool, typer.Option(help="keep what equal searches need; --no-caches to measure the models")
    ] = True,
) -> None:
    """Starts Triton and every service on loopback; stops them all on Ctrl-C."""
    manifest = export_if_stale(checkpoint or default_checkpoint(), model_repository, precision)
    ports = Ports.free(shards) if free_ports else Ports.fixed(shards)
    # SIGTERM as well as Ctrl-C must pass through the stack's stop, or its processes stay behind.
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with LocalStack(data.resolve(), model_repository.resolve(), ports, caches=caches) as stack:
        try:
            stack.start(should_stop=stopping.is_set)
        except StackFailed as error:
            errors.print(str(error), markup=False)
            raise typer.Exit(1) from error
        print_endpoints(stack)
        out.print("Ctrl-C stops everything.")
        try:
            _watch(stack, manifest, stopping)
        except (StackFailed, TritonUnavailable) as error:
            errors.print(str(error), markup=False)
            raise typer.Exit(1) from error
    out.print("stopped")


def _watch(stack: LocalStack, manifest: Manifest, stopping: threading.Event) -> None:
    """Returns when told to stop; raises where a service has ended or Triton does not come back."""
    with TritonWatch(stack, manifest) as watch:
        while not stopping.wait(1.0):
            if dead := stack.dead_service():
                raise StackFailed(dead)
            if why := watch.look():
                errors.print(f"Triton was restarted: {why}", markup=False)


def print_endpoints(stack: LocalStack) -> None:
    """Prints where each process listens."""
    table = Table(box=None, pad_edge=False)
    for heading in ("service", "gRPC", "metrics", "pid"):
        table.add_column(heading)
    for endpoint in stack.endpoints():
        table.add_row(endpoint.name, endpoint.address, endpoint.metrics_url, str(endpoint.pid))
    out.print(table)
