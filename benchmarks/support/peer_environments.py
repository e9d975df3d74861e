"""Peers of the benchmarks, each installed into an environment of its own and run as a script."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.measurement import Vectors

# Pinned, so that a figure can be got again; numpy is what measurement.py needs.
PEERS: dict[str, Sequence[str]] = {
    "milvus": ["milvus==2.3.5", "pymilvus==2.6.17", "setuptools==65.5.0", "numpy==1.26.4"],
    "chromadb": ["chromadb==1.5.9", "numpy==1.26.4"],
    "lancedb": ["lancedb==0.40.0", "numpy==2.4.6"],
    "usearch": ["usearch==2.26.6", "numpy==1.26.4"],
}

_SCRIPTS = Path(__file__).parents[1] / "peers"
_INSTALL_SECONDS = 900
_RUN_SECONDS = 4 * 3_600


def measure_peer(
    name: str,
    vectors: Vectors,
    work: Path,
    *,
    k: int,
    recall: float,
    search_count: int,
    client_count: int,
) -> list[dict[str, Any]]:
    """Returns what the peer's script printed, one result for each of its index types.

    One that could not be installed or run has its "error" instead.
    """
    folder = work / "peers" / name
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    log_path = folder / "run.log"
    log_path.unlink(missing_ok=True)
    try:
        python = _environment(folder / "environment", PEERS[name], folder / "install.log")
        with log_path.open("wb") as log:
            ran = subprocess.run(
                [
                    str(python),
                    str(_SCRIPTS / f"{name}_peer.py"),
                    *("--vectors", str(vectors.folder), "--work", str(data)),
                    *("--k", str(k), "--recall", str(recall)),
                    *("--searches", str(search_count), "--clients", str(client_count)),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env=_own_environ(),
                timeout=_RUN_SECONDS,
                check=True,
            )
        results: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
        return results
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        ends = [_end_of(path) for path in (folder / "install.log", log_path)]
        return [{"error": "; ".join([str(error), *filter(None, ends)])}]
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _environment(folder: Path, requirements: Sequence[str], log_path: Path) -> Path:
    """Returns the Python of an environment that has the requirements, made where it is not yet."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.is_file() and done.read_text() == " ".join(requirements):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    with log_path.open("wb") as log:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", *requirements],
        ):
            subprocess.run(command, stdout=log, stderr=log, timeout=_INSTALL_SECONDS, check=True)
    done.write_text(" ".join(requirements))
    log_path.unlink()
    return python


def _own_environ() -> dict[str, str]:
    """Returns the environment without what would put our packages before the peer's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"ANONYMIZED_TELEMETRY": "False", "LANCE_LOG": "error"}


def _end_of(log_path: Path) -> str:
    text = log_path.read_text(errors="replace") if log_path.is_file() else ""
    return text.strip()[-500:]
