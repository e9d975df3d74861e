"""`tandem up --next`: a second model beside the first, which does not depend on it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tandem.chassis.calls.channels import open_channel
from tandem.cli.app import app
from tandem.client import NO_RETRIES, Client, SearchResult
from tandem.contract.content import TextTokens
from tandem.contract.deadline import Deadline
from tandem.errors import ModelMismatch
from tandem.model_io.repository.manifest import manifest_file, read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.remote.reranker import RemoteReranker
from tandem.stack.memory import available_bytes
from tandem.stack.start_refused import StartRefused
from tandem.stages.reranking import Candidates, ScoreQuery
from tests.support.faults.supervisor import Supervised
from tests.support.index_svc.shard_process import listening_port
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import with_lone_instances

GIB = 1 << 30


def refusal(*options: str, data: Path, repository: Path) -> str:
    """Returns why `tandem up` starts nothing."""
    places = ("--data", str(data), "--model-repository", str(repository))
    result = CliRunner().invoke(app, ["up", "--free-ports", *places, *options])

    assert isinstance(result.exception, StartRefused), result.output
    assert list((data / "logs").iterdir()) == []
    return str(result.exception)


@pytest.fixture(name="other_repository")
def _other_repository(tiny_repository: Path, tmp_path: Path) -> Path:
    """The small model under another fingerprint."""
    return renamed(shutil.copytree(tiny_repository, tmp_path / "other"), "f" * 64)


def renamed(repository: Path, fingerprint: str) -> Path:
    """Changes the fingerprint that a repository's manifest says."""
    manifest = json.loads(manifest_file(repository).read_text())
    manifest_file(repository).write_text(json.dumps(manifest | {"fingerprint": fingerprint}))
    return repository


def test_a_machine_that_cannot_hold_both_models_is_refused(
    tmp_path: Path,
    tiny_repository: Path,
    other_repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything starts, with both numbers; one model alone is not asked."""
    monkeypatch.setattr("tandem.stack.next_models.available_bytes", lambda: 1.5 * GIB)

    why = refusal(
        "--next", str(other_repository), data=tmp_path / "data", repository=tiny_repository
    )

    found = re.match(r"both models need about ([\d,]+) MiB of memory, and 1,536 MiB are", why)
    assert found, why
    assert 1_900 < int(found[1].replace(",", "")) < 2_500


def test_a_model_is_not_next_to_itself(tmp_path: Path, tiny_repository: Path) -> None:
    """Nor is one that reads pictures in another way and says that it is the same."""
    copied = shutil.copytree(tiny_repository, tmp_path / "copied")
    text = manifest_file(copied).read_text()
    manifest_file(copied).write_text(text.replace('"fit": "letterbox"', '"fit": "squash"'))
    assert read_manifest(copied) != read_manifest(tiny_repository)

    why = refusal("--next", str(copied), data=tmp_path / "data", repository=tiny_repository)

    assert f"as {tiny_repository} does: give --next the repository of another model" in why


def grouped(root: Path, kind: str, files: Mapping[str, str]) -> Path:
    """Writes a machine with 8 GiB left, and a group's files."""
    for path, text in {
        "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {8 * GIB >> 10} kB\n",
        "proc/self/cgroup": f"3:cpu:/other\n4:{kind}:/pod/box\n",
        **files,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("kind", "files", "left"),
    [
        ("", {}, 8 * GIB),
        (
            "",
            {
                "sys/fs/cgroup/pod/box/memory.max": "max\n",
                "sys/fs/cgroup/pod/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/pod/memory.current": f"{3 * GIB}\n",
                "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        (
            "memory",
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            GIB,
        ),
    ],
    ids=["machine", "group above", "container of version 1"],
)
def test_what_is_left_of_memory_is_the_least_of_machine_and_groups(
    tmp_path: Path, kind: str, files: Mapping[str, str], left: int
) -> None:
    """A group's files that the kernel gives up first count as left."""
    assert available_bytes(grouped(tmp_path, kind, files)) == left


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Path]:
    """Runs `tandem up`, and yields the file of what it prints once it serves."""
    printed = folder / "out.txt"
    command = [sys.executable, "-m", "tandem.cli", "up", "--free-ports", "--no-caches", *options]
    with printed.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=folder, start_new_session=True
        )
    try:
        wait_for(printed, "Ctrl-C stops everything")
        yield printed
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, printed.read_text()


def wait_for(printed: Path, words: str, seconds: float = 120.0) -> None:
    """Waits until the command has printed the words."""
    end = time.monotonic() + seconds
    while words not in printed.read_text():
        assert time.monotonic() < end, printed.read_text()
        time.sleep(0.1)


def endpoints(printed: Path) -> dict[str, tuple[str, int]]:
    """Returns address and process of each service."""
    found = re.findall(r"^(\S+) +(127\S+) +http\S+ +(\d+)$", printed.read_text(), re.MULTILINE)
    return {name: (address, int(pid)) for name, address, pid in found}


class NextOrchestrator(Supervised):
    """Runs an orchestrator that searches by the next model alone."""

    def __init__(self, places: Mapping[str, tuple[str, int]], count: int, log: Path) -> None:
        def addresses(kind: str) -> str:
            return ",".join(places[f"{kind}-{number}"][0] for number in range(count))

        super().__init__(
            [sys.executable, "-m", "orchestrator_svc"],
            log,
            {
                "ORCHESTRATOR_ADDRESS": "127.0.0.1:0",
                "ORCHESTRATOR_METRICS_PORT": "0",
                "ORCHESTRATOR_ENCODER_ADDRESS": places["next-encoder"][0],
                "ORCHESTRATOR_INDEX_ADDRESSES": addresses("index"),
                "ORCHESTRATOR_RERANK_ADDRESSES": addresses("next-rerank"),
            },
        )

    def address(self) -> str:
        """Waits until it serves."""
        while (port := listening_port(self.log())) is None or '"serving"' not in self.log():
            assert self.ending() is None, self.log()
            time.sleep(0.05)
        return f"127.0.0.1:{port}"


def stored_and_found(client: Client, index_id: str) -> SearchResult:
    """Stores items of an index, and returns a reranked answer."""
    items = [(f"item-{number}", encoded(noise(number), "PNG")) for number in range(20)]
    outcomes = list(client.ingest(items, index_id=index_id))
    assert [each.error for each in outcomes] == [None] * 20
    return searched(client, index_id, "two cats")


def searched(client: Client, index_id: str, text: str) -> SearchResult:
    """Returns a whole answer."""
    answer = client.search(text, index_id=index_id, rerank_k=5)
    assert not answer.is_degraded, answer.degradations
    assert answer.rerank.reranked_depth == 5
    return answer


def check_both(
    serving: Client, places: Mapping[str, tuple[str, int]], count: int, other: str, log: Path
) -> None:
    """Checks that the next model answers for its own index, alone and next to the other."""
    process = NextOrchestrator(places, count, log)
    try:
        with Client(process.address()) as following:
            assert following.describe_model().fingerprint == other
            stored_and_found(following, "others")
            assert following.describe_index(index_id="others").model_fingerprint == other
            assert searched(serving, "others", "two cats").model_fingerprint == other
            with pytest.raises(ModelMismatch):
                following.search("two cats", index_id="scenes")
    finally:
        process.kill()


async def refused_by_reranker(places: Mapping[str, tuple[str, int]], index_id: str) -> str:
    """Returns the model of the next reranker, which refuses an index of the other model."""
    tokens = TextTokens(np.array([2, 7, 3], dtype=np.int32))
    async with open_channel(places["next-rerank-0"][0]) as channel:
        reranker = RemoteReranker(channel, 0, "next-")
        own = (await reranker.describe_model(Deadline.after(30.0))).fingerprint
        asked = [Candidates(tokens, ["item-0"])]
        with pytest.raises(ModelMismatch):
            await reranker.score(ScoreQuery(index_id, own), asked, Deadline.after(30.0))
    return own


def medians(address: str, seconds: float, during: Callable[[], None]) -> tuple[int, float]:
    """Searches by four clients, and returns how many answers there were, and their median time."""
    end = time.monotonic() + seconds

    def search(number: int) -> list[float]:
        times: list[float] = []
        with Client(address, timeout_seconds=30.0, retries=NO_RETRIES) as client:
            while time.monotonic() < end:
                start_time = time.monotonic()
                searched(client, "scenes", f"{number} cats and {len(times)} dogs")
                times.append(time.monotonic() - start_time)
        return times

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(search, number) for number in range(4)]
        during()
        times = [each for work in working for each in work.result()]
    return len(times), statistics.median(times)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("system")
@pytest.mark.parametrize(
    ("count", "layout"), [(2, []), (1, ["--merged"])], ids=["two shards", "merged"]
)
def test_the_serving_model_does_not_depend_on_the_next(
    tmp_path: Path, lone_instances: Path, tiny_checkpoint: Path, count: int, layout: list[str]
) -> None:
    """Each answers by its own services; killed ones start again, and no other search fails."""
    exported = tmp_path / "exported"
    export_model(tiny_checkpoint, exported, Precision.BF16)
    other = with_lone_instances(exported, tmp_path / "other")
    checkpoint = ["--checkpoint", str(tiny_checkpoint)]
    models = ["--model-repository", str(shutil.copytree(lone_instances, tmp_path / "models"))]
    with running(
        tmp_path, *checkpoint, *models, "--next", str(other), "--shards", str(count), *layout
    ) as printed:
        places = endpoints(printed)
        address = places["orchestrator"][0]
        fingerprints = [read_manifest(each).fingerprint for each in (lone_instances, other)]
        with Client(address) as serving:
            assert serving.describe_model().fingerprint == fingerprints[0]
            stored_and_found(serving, "scenes")
            if "index-0" in places:
                check_both(serving, places, count, fingerprints[1], tmp_path / "next.log")
        assert asyncio.run(refused_by_reranker(places, "scenes")) == fingerprints[1]
        quiet = medians(address, 10.0, lambda: None)
        for name, how in (
            ("next-encoder", signal.SIGSTOP),
            ("next-encoder", signal.SIGCONT),
            ("next-triton", signal.SIGKILL),
            ("next-encoder", signal.SIGKILL),
            ("next-rerank-0", signal.SIGKILL),
        ):
            during = medians(address, 10.0, partial(os.kill, places[name][1], how))
            print(f"{name} {how.name}: {during[0]}, p50 {during[1]:.3f} s; before {quiet}")
            assert during[0] > quiet[0] / 5  # A busy machine
            if how is signal.SIGKILL:
                wait_for(printed, f"{name} was restarted" if "triton" in name else f"{name} ended")
        assert printed.read_text().count("was started again") == 2
