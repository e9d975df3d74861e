"""Runs a command next to a whole Tandem with an index of emoji scenes, for integrations' tests.

    .venv/bin/python -P tests/support/scene_system.py COMMAND ...

Every process is on a free port of loopback, behind TLS and tokens. The command finds the system by
the variable TANDEM_SCENE_SYSTEM, a JSON object with the fields of `SceneSystem`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from tandem.client import Access, Client, NewItem
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.certificates import LocalAuthority
from tandem.stack.free_ports import free_ports
from tandem.stack.stack import LocalStack, Ports

ROOT = Path(__file__).parents[2]
INDEX = "scenes"
# Families of four, which differ in one thing each.
SCENE_COUNT = 24
_DEGRADED = "orchestrator-1"
# Nothing listens on the first port, so a call fails at once.
_NOTHING_THERE = "127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class SceneSystem:
    """What a suite needs to know."""

    address: str
    degraded_address: str
    """An orchestrator of the same system that reaches no cross-encoder."""
    index_id: str
    token: str
    authority_file: str
    captions: Mapping[str, str]
    """A caption of each image, by item id; the caption's own id is that with "/caption"."""


class _Stack(LocalStack):
    """A stack with a second orchestrator, which reaches no cross-encoder."""

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Returns the arguments and variables of a service's process."""
        arguments, variables = super().command(name)
        if name == _DEGRADED:
            shard_count = len(self.ports.rerank)
            variables |= {"ORCHESTRATOR_RERANK_ADDRESSES": ",".join([_NOTHING_THERE] * shard_count)}
        return arguments, variables


@contextlib.contextmanager
def scene_system(folder: Path, model_repository: Path) -> Iterator[SceneSystem]:
    """Starts the system, stores the scenes, and stops it at the end."""
    export_if_stale(default_checkpoint(), model_repository)
    authority = LocalAuthority(folder / "tls")
    token = secrets.token_urlsafe(32)
    scenes = list(scene_records("test", 7, SCENE_COUNT))
    with _Stack(
        folder / "data",
        model_repository,
        _ports(),
        settings={"ACCESS_TOKEN_FILE": str(_token_file(folder / "tokens.toml", token))},
        certificates=authority.issue_all(),
    ) as stack:
        stack.start()
        system = SceneSystem(
            stack.address_of("orchestrator"),
            stack.address_of(_DEGRADED),
            INDEX,
            token,
            str(authority.authority_file),
            {scene.record_id: _caption(scene) for scene in scenes},
        )
        access = Access(token, authority.authority_file.read_bytes())
        with Client(system.address, timeout_seconds=60.0, access=access) as client:
            for outcome in client.ingest(_items(scenes), index_id=INDEX):
                if outcome.error is not None:
                    raise outcome.error
        yield system


def _items(scenes: list[Record]) -> Iterator[NewItem]:
    for scene in scenes:
        yield scene.record_id, scene.image.read(), scene.attributes
        yield f"{scene.record_id}/caption", _caption(scene), scene.attributes


def _caption(scene: Record) -> str:
    return next(caption.text for caption in scene.captions if caption.language == "en")


def _ports() -> Ports:
    ports = Ports.free(shard_count=2)
    port, metrics_port = free_ports(2)
    return replace(ports, replicas={_DEGRADED: port}, metrics={**ports.metrics, port: metrics_port})


def _token_file(path: Path, token: str) -> Path:
    digest = sha256(token.encode()).hexdigest()
    path.write_text(
        f'[tokens.suite]\nsha256 = "{digest}"\nscopes = ["search", "write"]\nindexes = ["*"]\n',
        encoding="utf-8",
    )
    return path


def main(command: list[str]) -> int:
    """Returns the command's exit status."""
    repository = ROOT / "build" / "integrations" / "model_repository"
    repository.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        scene_system(Path(folder), repository) as system,
    ):
        environment = os.environ | {"TANDEM_SCENE_SYSTEM": json.dumps(asdict(system))}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -P tests/support/scene_system.py COMMAND ...")
    sys.exit(main(sys.argv[1:]))
