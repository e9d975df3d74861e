"""`tandem up`: everything on this machine, until Ctrl-C."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tandem.cli.console import errors, out
from tandem.cli.free_ports import free_ports
from tandem.cli.prometheus import (
    MAX_SPEED,
    LocalPrometheus,
    PrometheusUnavailable,
    scraped,
)
from tandem.cli.stack import LocalStack, Ports, StackFailed
from tandem.cli.stop_signals import StopSignals
from tandem.cli.triton_watch import TritonWatch
from tandem.cli.version_swaps import VersionSwaps
from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.triton_server import TritonUnavailable
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.fresh_export import export_if_stale

DATA = Annotated[Path, typer.Option(help="folder of item stores and logs")]
REPOSITORY = Annotated[Path, typer.Option(help="Triton's model repository")]

_PROMETHEUS_PORT = 9090


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
    free_ports_only: Annotated[
        bool, typer.Option("--free-ports", help="take any free ports, not the documented ones")
    ] = False,
    caches: Annotated[
        bool, typer.Option(help="keep what equal searches need; --no-caches to measure the models")
    ] = True,
    monitoring: Annotated[
        bool,
        typer.Option("--monitoring", help="a Prometheus beside them, with the rules of deploy/"),
    ] = False,
    alert_speed: Annotated[
        float,
        typer.Option(
            help="times as fast as deployed: divides the rules' windows and waits, to try alerts",
            min=1.0,
            max=MAX_SPEED,
        ),
    ] = 1.0,
    swaps: Annotated[
        bool,
        typer.Option(
            "--swaps",
            help="let tandem models swap change the model; whoever has an account on this machine "
            "can then have Triton run code",
        ),
    ] = False,
) -> None:
    """Starts Triton and every service on loopback; stops them all on Ctrl-C."""
    if monitoring:
        _check_prometheus()  # before anything is started
    # A minute on a busy machine, and nothing else is said until all of them serve.
    out.print(f"starting; logs go to {data / 'logs'}", highlight=False, soft_wrap=True)
    with StopSignals() as stopping:
        with stopping.raising():  # torch, which may export, cannot be asked to look
            manifest = export_if_stale(
                checkpoint or default_checkpoint(), model_repository, precision
            )
        ports = Ports.free(shards) if free_ports_only else Ports.fixed(shards)
        with (
            LocalStack(
                data.resolve(), model_repository.resolve(), ports, caches=caches, swaps=swaps
            ) as stack,
            ExitStack() as beside,
        ):
            try:
                stack.start(should_stop=stopping.is_set)
                print_endpoints(stack)
                prometheus = None
                if monitoring:
                    port = free_ports(1)[0] if free_ports_only else _PROMETHEUS_PORT
                    prometheus = _prometheus(stack, data.resolve(), port, alert_speed)
                    with stopping.raising():
                        beside.enter_context(prometheus)
                    out.print(f"Prometheus: {prometheus.url}, alerts: {prometheus.url}/alerts")
                out.print("Ctrl-C stops everything.")
                _watch(
                    stack,
                    manifest,
                    stopping,
                    prometheus,
                    VersionSwaps(stack, manifest) if swaps else None,
                )
            except (StackFailed, TritonUnavailable, PrometheusUnavailable, ValueError) as error:
                if stopping.is_set():  # before it served; nothing went wrong
                    raise SystemExit(stopping.status) from error
                errors.print(str(error), markup=False)
                raise typer.Exit(1) from error
    with suppress(OSError):  # the terminal may be what has ended
        out.print("stopped")


def _check_prometheus() -> None:
    try:
        LocalPrometheus.check_installed()
    except PrometheusUnavailable as error:
        errors.print(str(error), markup=False)
        raise typer.Exit(1) from error


def _prometheus(stack: LocalStack, data: Path, port: int, speed: float) -> LocalPrometheus:
    targets = scraped((each.name, each.metrics_url) for each in stack.endpoints())
    return LocalPrometheus(data / "prometheus", port, targets, speed=speed, keeper=stack.keeper)


def _watch(
    stack: LocalStack,
    manifest: Manifest,
    stopping: StopSignals,
    prometheus: LocalPrometheus | None,
    swaps: VersionSwaps | None,
) -> None:
    """Returns when told to stop; raises where a service has ended or Triton does not come back."""
    with TritonWatch(stack, manifest) as watch:
        while not stopping.wait(1.0):
            if prometheus is not None and prometheus.has_ended():
                errors.print("Prometheus has ended; searches go on without it", markup=False)
                prometheus = None
            if dead := stack.dead_service():
                raise StackFailed(dead)
            if why := watch.look():
                errors.print(f"Triton was restarted: {why}", markup=False)
            if swaps and (line := swaps.look()):
                out.print(line, markup=False)


def print_endpoints(stack: LocalStack) -> None:
    """Prints where each process listens."""
    table = Table(box=None, pad_edge=False)
    for heading in ("service", "gRPC", "metrics", "pid"):
        table.add_column(heading)
    for endpoint in stack.endpoints():
        table.add_row(endpoint.name, endpoint.address, endpoint.metrics_url, str(endpoint.pid))
    out.print(table)
