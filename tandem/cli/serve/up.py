"""`tandem up`: runs everything on this machine until Ctrl-C."""

import os
import shlex
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, index_of
from tandem.cli.ingest.corpus_ingest import CorpusIngest
from tandem.cli.options import DEFAULT_ADDRESS, DEFAULT_REPOSITORY, with_options
from tandem.cli.serve.one_process import http_line, serve_one_process
from tandem.cli.serve.served_model import check_has_model, served_manifest
from tandem.cli.serve.service_settings import GivenSettings, given_settings
from tandem.cli.terminal.console import Terminal, errors, out
from tandem.cli.terminal.stop_signals import Stopped, StopSignals
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.demo_model import is_demo
from tandem.platform.child_processes.keeper import ProcessFailed
from tandem.stack.data_folder import DataFolder
from tandem.stack.free_ports import free_ports
from tandem.stack.next_models import NextModels, NextWatch, next_manifest
from tandem.stack.prometheus import (
    MAX_SPEED,
    LocalPrometheus,
    scraped,
)
from tandem.stack.stack import Endpoint, LocalStack, Ports, StackFailed
from tandem.stack.start_checks import (
    check_machine,
    check_ports,
    check_torch,
    has_gateway,
    precision_note,
    shard_count,
)
from tandem.stack.start_refused import StartRefused
from tandem.stack.triton_watch import TritonWatch
from tandem.stack.version_swaps import VersionSwaps

if TYPE_CHECKING:
    from tandem.stack.certificates import LocalAuthority

_PROMETHEUS_PORT = 9090
_CONSOLE_NOTE = (
    "This is the demo's model: it knows composed scenes of emoji, and on photographs its results "
    "mean little."
)
# Certificates are valid for 30 days; processes reload them.
_RENEWAL_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of the command."""

    data: Annotated[Path, "folder for item stores and logs"] = Path(".tandem")
    model_repository: Annotated[
        Path | None,
        "model repository, as tandem models add fills it; by default model_repository, "
        "with the demo's model in it at first",
    ] = None
    next: Annotated[
        Path | None,
        "model repository of a second model, which runs next to the first for other generations of "
        "an index",
    ] = None
    checkpoint: Annotated[
        Path | None,
        "checkpoint to serve; by default the model that was added to the repository, or "
        "the shipped one",
    ] = None
    shards: Annotated[
        int | None,
        typer.Option(help="index shards; by default as many as the folder has, or 2", min=1, max=8),
    ] = None
    precision: Annotated[
        Precision | None, "precision; by default that of the export, or this CPU's best"
    ] = None
    free_ports_only: Annotated[
        bool, typer.Option("--free-ports", help="use free ports instead of the documented ones")
    ] = False
    caches: Annotated[bool, "cache encodings and scores; --no-caches to measure the models"] = True
    monitoring: Annotated[bool, "also run Prometheus, with the rules of deploy/"] = False
    alert_speed: Annotated[
        float,
        typer.Option(
            help="divide the windows of the alert rules by this, to try alerts",
            min=1.0,
            max=MAX_SPEED,
        ),
    ] = 1.0
    swaps: Annotated[
        bool,
        "allow tandem models swap; every account of this machine can then make Triton run code",
    ] = False
    tls: Annotated[
        bool,
        "use TLS between all processes, with certificates that are made and renewed here; "
        "callers trust tls/ca.crt in --data",
    ] = False
    merged: Annotated[
        bool,
        "run all services in the orchestrator's process: half the services' CPU for each search",
    ] = False
    one_process: Annotated[
        bool, "serve gRPC and HTTP from one process, without Triton: only the public API"
    ] = False
    ingest: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            help="once it serves, ingest this as tandem ingest --on-error skip does, and continue "
            f"to serve: {CORPUS_HELP}",
        ),
    ] = None
    index: Annotated[
        str | None, "index that --ingest stores into; by default the folder's name"
    ] = None

    def __post_init__(self) -> None:
        """Raises StartRefused for options that contradict each other."""
        if self.index is not None and self.ingest is None:
            raise StartRefused(
                "--index says where --ingest stores: give --ingest too, or leave it out"
            )
        if self.one_process:
            others = {
                "--monitoring": self.monitoring,
                "--swaps": self.swaps,
                "--tls": self.tls,
                "--merged": self.merged,
                "--next": self.next is not None,
            }
            if chosen := [option for option, is_chosen in others.items() if is_chosen]:
                raise StartRefused(
                    f"{', '.join(chosen)} needs several processes: leave out --one-process"
                )
            check_torch()
        if self.tls and self.merged:
            raise StartRefused(
                "--tls gives each service certificates of its own: leave out --merged"
            )

    @property
    def repository(self) -> Path:
        """The model repository."""
        return self.model_repository or DEFAULT_REPOSITORY


@with_options
def up(asked: UpOptions) -> None:
    """Start Triton and every service on loopback.

    Ctrl-C stops them all.
    """
    corpus_ingest = None
    if asked.ingest is not None:
        corpus_ingest = CorpusIngest(asked.ingest, asked.index or index_of(asked.ingest))
    if asked.model_repository is not None and asked.checkpoint is None:
        check_has_model(asked.model_repository, "--model-repository")
    if asked.next is not None:
        check_has_model(asked.next, "--next")
    if asked.monitoring:
        LocalPrometheus.check_installed()  # Before creating a folder.
    serve = _serve_one_process if asked.one_process else _serve_stack
    serve(asked, corpus_ingest)
    _say("stopped")


def _serve_one_process(asked: UpOptions, corpus_ingest: CorpusIngest | None) -> None:
    with DataFolder(asked.data.resolve()) as folder:
        if folder.note:
            errors.print(folder.note)
        manifest = served_manifest(asked.checkpoint, asked.repository, asked.precision)
        serve_one_process(
            folder,
            asked.repository.resolve(),
            manifest,
            shards=asked.shards,
            variables=_console_note(manifest) | dict(given_settings(os.environ).variables),
            free_ports_only=asked.free_ports_only,
            caches=asked.caches,
            ingest=corpus_ingest,
        )


def _serve_stack(asked: UpOptions, corpus_ingest: CorpusIngest | None) -> None:
    with StopSignals() as stopping, DataFolder(asked.data.resolve()) as folder:
        # Find all mistakes before starting anything.
        check_machine(asked.checkpoint or default_checkpoint())
        given = given_settings(os.environ)
        authority = _authority(folder, given) if asked.tls else None
        count = shard_count(asked.shards, folder.shard_count(), asked.data)
        ports = Ports.free(count) if asked.free_ports_only else Ports.fixed(count)
        others = [("Triton's proxy", ports.triton_tls)] if asked.tls else []
        if asked.monitoring and not asked.free_ports_only:
            others.append(("Prometheus", _PROMETHEUS_PORT))
        check_ports(ports, others)
        for note in (folder.note, *given.notes, precision_note(asked.precision)):
            if note:
                errors.print(note)
        # It takes a minute on a busy machine, and prints nothing else until all serve.
        out.print(f"starting; logs go to {asked.data / 'logs'}")
        with stopping.raising():  # An export by torch cannot poll for signals.
            manifest = served_manifest(asked.checkpoint, asked.repository, asked.precision)
        with ExitStack() as opened:
            certificates = authority.issue_all() if authority else None
            settings = _console_note(manifest) | dict(given.variables)
            second: NextWatch | None = None
            if asked.next is not None:
                other = next_manifest(asked.next, asked.repository, manifest, count)
                models = NextModels(
                    folder.path,
                    asked.next.resolve(),
                    Ports.free(count),
                    caches=asked.caches,
                    settings=given.variables,
                    certificates=certificates,
                )
                opened.enter_context(models)
                second = NextWatch(models, other)
                settings |= models.variables()
            stack = LocalStack(
                folder.path,
                asked.repository.resolve(),
                ports,
                caches=asked.caches,
                swaps=asked.swaps,
                gateway=has_gateway(),
                merged=asked.merged,
                settings=settings,
                certificates=certificates,
            )
            opened.enter_context(stack)
            try:
                _run(stack, second, asked, manifest, stopping, authority, corpus_ingest)
            except ProcessFailed:
                if stopping.is_set():  # Stopped before it served, without a failure.
                    raise Stopped(stopping.status) from None
                raise


def _run(
    stack: LocalStack,
    second: NextWatch | None,
    asked: UpOptions,
    manifest: Manifest,
    stopping: StopSignals,
    authority: "LocalAuthority | None",
    corpus_ingest: CorpusIngest | None,
) -> None:
    """Starts the stack and what runs next to it, and watches them until a stop signal."""
    with ExitStack() as beside:
        stack.start(should_stop=stopping.is_set, show=out.print)
        if second:
            out.print("the next model starts")
            second.models.start(should_stop=stopping.is_set, show=out.print)
        endpoints = [*stack.endpoints(), *(second.models.endpoints() if second else ())]
        print_endpoints(endpoints)
        prometheus = None
        if asked.monitoring:
            prometheus = _prometheus(stack, endpoints, asked)
            with stopping.raising():
                beside.enter_context(prometheus)
            out.print(f"Prometheus: {prometheus.url}, alerts: {prometheus.url}/alerts")
        version_swaps = None
        if asked.swaps:
            version_swaps = VersionSwaps(stack, manifest)
            beside.callback(version_swaps.close)
        _print_next(stack, authority)
        if corpus_ingest is not None:
            beside.enter_context(corpus_ingest)
            corpus_ingest.start(stack.address, stack.keeper.mark() | _trust_of(authority))
        if second:
            beside.enter_context(second).models.give_way(
                lambda: (
                    stopping.is_set()
                    or bool(stack.dead_service() or stack.has_triton_lost_process())
                )
            )
        _watch(stack, manifest, stopping, prometheus, version_swaps, authority, second)


def _authority(folder: DataFolder, given: GivenSettings) -> "LocalAuthority":
    if named := [each for each in given.variables if each.startswith("TLS_")]:
        raise StartRefused(f"--tls makes certificates itself: unset {', '.join(named)}")
    # Imported here: a service's image has this command line without cryptography.
    from tandem.stack.certificates import LocalAuthority

    return LocalAuthority(folder.path / "tls")


def _console_note(manifest: Manifest) -> dict[str, str]:
    """Returns the web console's note on the demo's model; empty for another model."""
    return {"GATEWAY_CONSOLE_NOTE": _CONSOLE_NOTE} if is_demo(manifest.fingerprint) else {}


def _print_next(stack: LocalStack, authority: "LocalAuthority | None") -> None:
    out.print(http_line(stack.http_url))
    if authority is not None:
        [(variable, file)] = _trust_of(authority).items()
        out.print(f"other commands trust it by: export {variable}={shlex.quote(file)}")
    if stack.address != DEFAULT_ADDRESS:
        # Lines with 127.0.0.1 are processes: scripts read the ids at their ends.
        port = stack.ports.orchestrator
        out.print(f"give other commands --address localhost:{port} to find it")
    out.print("Ctrl-C stops everything.")


def _trust_of(authority: "LocalAuthority | None") -> dict[str, str]:
    """Returns the variable by which a client trusts the authority, if there is one."""
    return {} if authority is None else {"TANDEM_AUTHORITY_FILE": str(authority.authority_file)}


def _prometheus(
    stack: LocalStack, endpoints: Iterable[Endpoint], asked: UpOptions
) -> LocalPrometheus:
    port = free_ports(1)[0] if asked.free_ports_only else _PROMETHEUS_PORT
    targets = scraped((each.name, each.metrics_url) for each in endpoints)
    folder, speed = asked.data.resolve() / "prometheus", asked.alert_speed
    return LocalPrometheus(folder, port, targets, speed=speed, keeper=stack.keeper)


def _say(line: str, console: Terminal = out) -> None:
    # The terminal may be closed since, and searches continue.
    with suppress(OSError):
        console.print(line)


def _watch(
    stack: LocalStack,
    manifest: Manifest,
    stopping: StopSignals,
    prometheus: LocalPrometheus | None,
    swaps: VersionSwaps | None,
    authority: "LocalAuthority | None",
    next_watch: NextWatch | None,
) -> None:
    """Returns on a stop signal; raises if a service has ended or Triton does not restart."""
    renewal_time = time.monotonic() + _RENEWAL_SECONDS
    with TritonWatch(stack, manifest) as watch:
        while not stopping.wait(1.0):
            if authority is not None and time.monotonic() > renewal_time:
                authority.issue_all()
                renewal_time = time.monotonic() + _RENEWAL_SECONDS
            stack.bound_logs()
            if prometheus is not None and prometheus.has_ended():
                _say("Prometheus has ended; searches continue without it", errors)
                prometheus = None
            if dead := stack.dead_service():
                raise StackFailed(dead)
            if why := watch.look():
                _say(f"Triton was restarted: {why}", errors)
            if swaps and (line := swaps.look()):
                _say(line)
            if next_watch and (line := next_watch.look()) and not stopping.is_set():
                _say(line, errors)


def print_endpoints(endpoints: Iterable[Endpoint]) -> None:
    """Prints the address of each process."""
    found = [[one.name, one.address, one.metrics_url, str(one.pid)] for one in endpoints]
    out.rows([["service", "address", "metrics", "pid"], *found], left=range(3))
