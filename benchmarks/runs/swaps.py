"""Swaps model versions during searches: none may fail, and each answer is of one version.

    python -m benchmarks.runs.swaps [--swaps 20] [--broken 5] [--rate 30]
    python -m benchmarks.runs.swaps --swaps 2 --broken 1    # the short form

A whole Tandem on this machine with a small model. Every version adds a number of its own to each
match logit, so that an answer's scores tell which version made them, whatever the answer says.
Between the swaps come versions that are broken, each in another way. Exits 1 unless every good
version served, no broken one did, no search failed, and no answer is of two versions.
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.loads.sending import sending
from benchmarks.support.small_model import save_small, short_texts
from benchmarks.support.stored_pictures import store_pictures
from tandem.cli.models.swap import ask_for
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.model_version import ModelVersion, serving, version_folder
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.modeling.export.version_export import export_version
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.version_swaps import VersionSwaps

INDEX_ID = "swaps"
LOGIT_STEP = 40.0  # many times the spread of a version's own logits
WAIT_SECONDS = 120.0
# A version that is loaded fills the cores for seconds; searches are then slower, not refused.
SETTINGS = {"ORCHESTRATOR_MAX_INFLIGHT_COUNT": "128"}


def damage(folder: Path) -> None:
    """A bit of the model's file flips."""
    path = folder / "model.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def say_another_model(folder: Path) -> None:
    """It says that it is of another model."""
    replace(ModelVersion.read(folder), fingerprint="0" * 64).write(folder)


def is_not_torchscript(folder: Path) -> None:
    """Its file has the digest that it should, and is not a model."""
    (folder / "model.pt").write_bytes(b"no model")
    _digest_anew(folder)


class _Widened(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self,
        input_ids: torch.Tensor,
        text_mask: torch.Tensor,
        image_tokens: torch.Tensor,
        image_mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        embedding, logit = self.inner(input_ids, text_mask, image_tokens, image_mask)
        return torch.cat([embedding, embedding[:, :1]], dim=1), logit


def widen(folder: Path) -> None:
    """Its embeddings have a dimension too many."""
    path = folder / "model.pt"
    torch.jit.save(torch.jit.script(_Widened(torch.jit.load(str(path)))), str(path))
    _digest_anew(folder)


BROKEN: tuple[Callable[[Path], None] | None, ...] = (
    damage,
    widen,
    say_another_model,
    None,  # other embeddings: another checkpoint, not a broken folder
    is_not_torchscript,
)


def _digest_anew(folder: Path) -> None:
    digest = sha256((folder / "model.pt").read_bytes()).hexdigest()
    replace(ModelVersion.read(folder), model_sha256=digest).write(folder)


class Operator:
    """Makes versions and asks for them, as `tandem models swap` does."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self._folder = folder
        self._repository = repository
        self._number = 1

    def swap(self) -> dict[str, Any]:
        """Has another version serve."""
        version = self._export(logit_shift=LOGIT_STEP * self._number)
        return self._ask(version, "good")

    def swap_broken(self, kind: int) -> dict[str, Any]:
        """Asks for a version that must not serve."""
        break_it = BROKEN[kind % len(BROKEN)]
        version = self._export(
            logit_shift=LOGIT_STEP * self._number, word_noise=0.0 if break_it else 1.0
        )
        if break_it:
            break_it(version_folder(self._repository, version))
        return self._ask(version, break_it.__name__ if break_it else "other_embeddings")

    def _export(self, **changes: float) -> int:
        self._number += 1
        changes["logit_shift"] = LOGIT_STEP * (self._number - 1)
        checkpoint = save_small(self._folder / "checkpoint", **changes)
        version = export_version(checkpoint, self._repository)
        assert version == self._number
        return version

    def _ask(self, version: int, kind: str) -> dict[str, Any]:
        start_time = time.monotonic()
        outcome = ask_for(self._repository, version, WAIT_SECONDS)
        seconds = time.monotonic() - start_time
        return {
            "version": version,
            "kind": kind,
            "serving": outcome.version,
            "refusal": outcome.refusal,
            "seconds": round(seconds, 1),
        }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, 100))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = folder / "model_repository"
        export_model(save_small(folder / "first"), repository, Precision.FP32)
        with LocalStack(
            folder / "data", repository, Ports.free(2), swaps=True, settings=SETTINGS
        ) as stack:
            stack.start()
            store_pictures(stack.address, INDEX_ID, records)
            ending = threading.Event()
            swaps = VersionSwaps(stack, read_manifest(repository))
            looking = threading.Thread(target=_look, args=(swaps, ending))
            looking.start()
            try:
                with sending(
                    stack.address,
                    INDEX_ID,
                    short_texts(records),
                    arguments.rate,
                    *("--logit-step", str(LOGIT_STEP)),
                ) as load:
                    outcomes = _swap_all(Operator(folder, repository), arguments)
                    time.sleep(3.0)
            finally:
                ending.set()
                looking.join()
            return {
                "run": "swaps",
                "rate": arguments.rate,
                "swaps": outcomes,
                "last_serving": serving(repository).version,
                **load.seen,
            }


def _look(swaps: VersionSwaps, ending: threading.Event) -> None:
    while not ending.wait(1.0):  # as `tandem up` does
        swaps.look()


def _swap_all(operator: Operator, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    outcomes = []
    every = max(1, arguments.swaps // max(1, arguments.broken))
    for number in range(arguments.swaps):
        outcomes.append(operator.swap())
        print(json.dumps(outcomes[-1]), file=sys.stderr, flush=True)
        kind, is_due = divmod(number + 1, every)
        if not is_due and kind <= arguments.broken:
            outcomes.append(operator.swap_broken(kind - 1))
            print(json.dumps(outcomes[-1]), file=sys.stderr, flush=True)
    return outcomes


def faults(result: dict[str, Any]) -> list[str]:
    """Returns what should not be."""
    found = [f"{count} searches: {name}" for name, count in result["failed"].items()]
    found += [
        f"version {each['version']} ({each['kind']}): {each}"
        for each in result["swaps"]
        if (each["serving"] == each["version"]) != (each["kind"] == "good")
    ]
    good = {str(e["version"]) for e in result["swaps"] if e["kind"] == "good"} | {"1"}
    if strangers := set(result["versions"]) - good:
        found.append(f"answers name versions {sorted(strangers)}")
    if unseen := good - set(result["versions"]):
        found.append(f"no answer names versions {sorted(unseen)}: too little was asked")
    if result["mixed"]:
        found.append(f"{result['mixed']} answers have scores of another version than they name")
    return found


def main() -> None:
    """Prints one JSON line and what is wrong; exits 1 where anything is."""
    parser = argparse.ArgumentParser(description="model versions swapped under load")
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--broken", type=int, default=5)
    parser.add_argument("--rate", type=float, default=30.0, help="searches a second")
    # Otherwise what is started here would outlive a run that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = run(parser.parse_args())
    print(json.dumps(result))
    found = faults(result)
    print("\n".join(found) or "nothing failed, and every answer is of the version it names")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
