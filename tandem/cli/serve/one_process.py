"""Runs `tandem up --one-process`: gRPC and HTTP from here, without Triton or other services."""

import os
from collections.abc import Mapping
from pathlib import Path

from tandem.cli.ingest.corpus_ingest import CorpusIngest
from tandem.cli.terminal.console import out
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.data_folder import DataFolder
from tandem.stack.free_ports import free_ports
from tandem.stack.ports import HOST
from tandem.stack.start_checks import check_free, has_gateway, shard_count

_PORTS = (7400, 7500, 7450)


def serve_one_process(
    folder: DataFolder,
    repository: Path,
    manifest: Manifest,
    *,
    shards: int | None,
    variables: Mapping[str, str],
    free_ports_only: bool,
    caches: bool,
    ingest: CorpusIngest | None,
) -> None:
    """Serves until Ctrl-C, and prints the addresses once they answer; raises StartRefused.

    The `ingest` starts then, and ends before the server does.
    """
    count = shard_count(shards, folder.shard_count(), folder.path)
    port, metrics_port, http_port = free_ports(len(_PORTS)) if free_ports_only else _PORTS
    address, has_http = f"{HOST}:{port}", has_gateway()
    doors = [
        ("gRPC", port),
        ("metrics", metrics_port),
        *([("HTTP", http_port)] if has_http else []),
    ]
    check_free(doors)
    prefixes = ("ORCHESTRATOR_", *(["GATEWAY_"] if has_http else []))
    settings = {key: each for key, each in variables.items() if key.startswith(prefixes)}
    settings |= {
        "ORCHESTRATOR_ADDRESS": address,
        "ORCHESTRATOR_METRICS_PORT": str(metrics_port),
    }
    if has_http:
        settings |= {
            "GATEWAY_ADDRESS": f"{HOST}:{http_port}",
            "GATEWAY_ORCHESTRATOR_ADDRESS": "in-process",
        }
    # An access log belongs into a file; there is one terminal here.
    os.environ.setdefault("LOG_LEVEL", "warning")

    def announce() -> None:
        out.print(f"serving at {address}, metrics at http://{HOST}:{metrics_port}/metrics")
        out.print(http_line(f"http://localhost:{http_port}/" if has_http else None))
        out.print("Ctrl-C stops it.")
        if ingest is not None:
            ingest.start(address)

    def stop() -> None:
        if ingest is not None:
            ingest.stop()

    # Imported here: they take 20 MB, and processes of their own under `tandem up` without this.
    from merged_svc.serving import serve_from_one_process

    serve_from_one_process(
        [folder.path / f"shard-{number}" for number in range(count)],
        repository,
        manifest,
        settings,
        caches=caches,
        when_ready=announce,
        when_stopping=stop,
    )


def http_line(url: str | None) -> str:
    """Returns the line that says where HTTP is served, or how to get it."""
    return (
        f"HTTP: {url}"
        if url
        else "HTTP is not served: pip install 'tandem-search[gateway]' adds it"
    )
