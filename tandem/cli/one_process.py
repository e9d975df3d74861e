"""Runs `tandem up --one-process`: gRPC from this process, without Triton or other services."""

import importlib
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tandem.cli.console import out
from tandem.local.data_folder import DataFolder
from tandem.local.free_ports import free_ports
from tandem.local.ports import HOST
from tandem.local.start_checks import shard_count
from tandem.local.start_refused import StartRefused
from tandem.model_io.manifest import Manifest

_PORT, _METRICS_PORT = 7400, 7500
_PACKAGES = ("faiss", "torch")


def check_one_process(refused: Mapping[str, bool]) -> None:
    """Raises StartRefused for options that need other processes, and without a package."""
    if chosen := [option for option, is_chosen in refused.items() if is_chosen]:
        raise StartRefused(f"{', '.join(chosen)} needs several processes: leave out --one-process")
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise StartRefused(
            f"not installed, and needed here: {', '.join(missing)}; install with: "
            "pip install 'tandem-search[local]'"
        )


def serve_one_process(
    folder: DataFolder,
    repository: Path,
    manifest: Manifest,
    *,
    shards: int | None,
    variables: Mapping[str, str],
    free_ports_only: bool,
    caches: bool,
) -> None:
    """Serves until Ctrl-C, and prints the address once it answers."""
    count = shard_count(shards, folder.shard_count(), folder.path)
    port, metrics_port = free_ports(2) if free_ports_only else (_PORT, _METRICS_PORT)
    address = f"{HOST}:{port}"
    # An access log belongs into a file; there is one terminal here.
    os.environ.setdefault("LOG_LEVEL", "warning")

    def tell() -> None:
        out.print(f"serving at {address}, metrics at http://{HOST}:{metrics_port}/metrics")
        out.print("Ctrl-C stops it.")

    # By name, because the command line imports no service.
    serving = importlib.import_module("embedded.serving")
    serving.serve_from_one_process(
        [folder.path / f"shard-{number}" for number in range(count)],
        repository,
        manifest,
        {
            **{key: each for key, each in variables.items() if key.startswith("ORCHESTRATOR_")},
            "ORCHESTRATOR_ADDRESS": address,
            "ORCHESTRATOR_METRICS_PORT": str(metrics_port),
        },
        caches=caches,
        when_ready=tell,
    )
