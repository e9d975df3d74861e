"""The built images, run as Compose and Kubernetes would: they search, and may write nowhere else.

`make test-images` runs these tests after `make images`. They need root, buildah, runc and iproute2.
"""

from __future__ import annotations

import json
import secrets
import shutil
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tandem.client import Access, Client, NewItem
from tandem.corpus.scenes.records import scene_records
from tandem.stack.stack import LocalStack, Ports
from tests.support.deploy.rendered import OVERLAYS, of_kind, rendered
from tests.support.deploy.workloads import workloads
from tests.support.images.composed import ComposeRunner, composed_services
from tests.support.images.containers import (
    IMAGES,
    ContainerPlan,
    Containers,
    MissingPart,
    Mount,
    check_parts,
)
from tests.support.images.pods import PodRunner, names_of, pods_of

SERVICE, MODELS, TRITON = IMAGES
INDEX = "scenes"
SCENE_COUNT = 16
QUERIES = ("two birds left of one alarm clock", "two crabs", "a dog", "three cats", "one house")
# torch adds in another order where another number of threads works on it.
_TOLERANCE = 1e-3


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Skips where no image was built or nothing can run one."""
    try:
        check_parts()
    except MissingPart as missing:
        pytest.skip(str(missing))


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first."""

    item_ids: tuple[str, ...]
    probabilities: tuple[float, ...]


def items() -> Iterator[NewItem]:
    """Yields pictures, and a caption of each."""
    for record in scene_records("test", 7, SCENE_COUNT):
        yield record.record_id, record.image.read()
        caption = next(each for each in record.captions if each.language == "en")
        yield caption.caption_id, caption.text


def filled_and_searched(address: str, access: Access | None = None) -> list[Found]:
    """Stores the items and returns what each query finds, every item reranked."""
    with Client(address, timeout_seconds=60.0, access=access) as client:
        for outcome in client.ingest(items(), index_id=INDEX):
            assert outcome.error is None, outcome
        return [found(client, query) for query in QUERIES]


def found(client: Client, query: str) -> Found:
    """Returns what one query finds, every item reranked."""
    result = client.search(query, index_id=INDEX, return_n=SCENE_COUNT)
    assert not result.degradations, result.degradations
    chances = [item.match_probability for item in result.items]
    assert len(chances) == SCENE_COUNT
    return Found(
        tuple(item.item_id for item in result.items),
        tuple(chance for chance in chances if chance is not None),
    )


def same(answers: Sequence[Found], expected: Sequence[Found]) -> bool:
    """Says whether the ids are the same and the cross-encoder gave each the same chance."""
    return all(
        ours.item_ids == theirs.item_ids
        and ours.probabilities == pytest.approx(theirs.probabilities, abs=_TOLERANCE)
        for ours, theirs in zip(answers, expected, strict=True)
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, built: None) -> list[Found]:
    """What the processes of this checkout find, with the models of the image."""
    folder = tmp_path_factory.mktemp("local")
    with Containers(folder / "containers", {}) as containers:
        shutil.copytree(containers.image_folder(MODELS) / "models", folder / "models")
    with LocalStack(folder / "data", folder / "models", Ports.free(shard_count=2)) as stack:
        stack.start()
        answers = filled_and_searched(stack.address)
    assert len({answer.item_ids for answer in answers}) == len(QUERIES)
    return answers


@dataclass(frozen=True, slots=True)
class Token:
    """A caller's token, and the file that knows it."""

    text: str
    file_text: str


@pytest.fixture(scope="module")
def token() -> Token:
    """A token for everything."""
    text = secrets.token_urlsafe(32)
    digest = sha256(text.encode()).hexdigest()
    entry = f'sha256 = "{digest}"\nscopes = ["search", "write", "admin"]\nindexes = ["*"]\n'
    return Token(text, f"[tokens.suite]\n{entry}")


def http_found(address: str, query: str, token: str | None = None) -> tuple[str, ...]:
    """Returns the ids that a search over HTTP finds."""
    body = {"query": query, "index_id": INDEX, "return_n": SCENE_COUNT}
    headers = {"Content-Type": "application/json", "Host": "localhost"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(
        f"http://{address}/v1/search", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return tuple(item["item_id"] for item in json.load(answer)["items"])


def console_page(address: str) -> str:
    """Returns the web console's first page."""
    request = urllib.request.Request(f"http://{address}/", headers={"Host": "localhost"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


# In it each line tells of a write that should fail or succeed.
_WRITES = """
import os, sys
for folder in sys.argv[1:]:
    try:
        os.close(os.open(f"{folder}/probe", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.unlink(f"{folder}/probe")
    except OSError as error:
        print(folder, error.strerror)
    else:
        print(folder, "written")
"""


def check_locked(containers: Containers, name: str, writable: Sequence[str], uid: int) -> None:
    """Asserts that its user may write to these folders, and to no other."""
    others = ["/", "/opt/tandem", "/usr/lib", "/var/tmp", "/run"]
    told = containers.execute(name, "python3", "-c", _WRITES, *others, *writable)
    expected = [*(f"{each} Read-only file system" for each in others)]
    expected += [f"{each} written" for each in writable]
    assert told.stdout.splitlines() == expected, told
    status = containers.execute(name, "cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [str(uid)] * 4
    assert {fields[each] for each in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.timeout(600)
def test_the_pods_of_a_laptops_cluster_search_as_the_local_stack(
    expected: list[Found], tmp_path: Path
) -> None:
    """Every container by its manifest: its image, command, settings, volumes, limits and probes."""
    resources = rendered("laptop")
    pods = pods_of(resources)
    hosts = {pod.name: names_of(pod, resources) for pod in pods}
    with Containers(tmp_path / "containers", hosts) as containers:
        runner = PodRunner(containers, resources, tmp_path / "volumes", {})
        for pod in pods:
            runner.start(pod)
        for pod in pods:
            runner.wait_until_ready(pod)
        addresses = containers.addresses

        answers = filled_and_searched(f"{addresses['orchestrator-0']}:7400")
        by_http = http_found(f"{addresses['gateway-0']}:7450", QUERIES[0])
        page = console_page(f"{addresses['gateway-0']}:7450")

        assert same(answers, expected)
        assert by_http == expected[0].item_ids
        assert "<title>" in page
        check_locked(containers, "encoder-0.encoder", ["/tmp"], 10001)
        check_locked(containers, "shard-0.index", ["/tmp", "/store"], 10001)
        check_locked(containers, "shard-1.rerank", ["/tmp", "/store"], 10001)
        check_locked(containers, "triton-0.triton", ["/tmp", "/dev/shm"], 1000)
        shown = containers.execute("shard-0.rerank", "cat", "/proc/1/cmdline").stdout
        assert "index_svc" in shown  # one count of processes, as LMDB needs
        statuses = [status for pod in pods for status in runner.stop(pod).values()]
        assert set(statuses) == {0}


@pytest.mark.timeout(600)
def test_one_pod_of_all_services_searches_as_the_local_stack(
    expected: list[Found], token: Token, tmp_path: Path
) -> None:
    resources = rendered("merged")
    pods = pods_of(resources)
    hosts = {pod.name: names_of(pod, resources) for pod in pods}
    given = {"access-tokens": {"tokens.toml": token.file_text}}
    with Containers(tmp_path / "containers", hosts) as containers:
        runner = PodRunner(containers, resources, tmp_path / "volumes", given)
        for pod in pods:
            runner.start(pod)
        for pod in pods:
            runner.wait_until_ready(pod)
        address = containers.addresses["orchestrator-0"]

        answers = filled_and_searched(f"{address}:7400", Access(token.text))

        assert same(answers, expected)
        assert http_found(f"{address}:7450", QUERIES[1], token.text) == expected[1].item_ids
        check_locked(containers, "orchestrator-0.orchestrator", ["/tmp", "/store"], 10001)
        statuses = [status for pod in pods for status in runner.stop(pod).values()]
        assert set(statuses) == {0}


@pytest.mark.timeout(600)
def test_compose_searches_as_the_local_stack_and_backs_up_a_shard(
    expected: list[Found], token: Token, tmp_path: Path
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "tokens.toml").write_text(token.file_text)
    hosts = {name: [name] for name in composed_services()}
    with Containers(tmp_path / "containers", hosts) as containers:
        runner = ComposeRunner(containers, tmp_path / "volumes", folder)
        runner.start()
        addresses = containers.addresses

        answers = filled_and_searched(f"{addresses['orchestrator']}:7400", Access(token.text))
        by_http = http_found(f"{addresses['gateway']}:7450", QUERIES[2], token.text)

        assert same(answers, expected)
        assert by_http == expected[2].item_ids
        check_locked(containers, "gateway", ["/tmp"], 10001)
        check_locked(containers, "rerank-1", ["/tmp", "/store"], 10001)
        check_locked(containers, "triton", ["/tmp", "/dev/shm"], 1000)
        # As docs/deploy.md says.
        shard = ("tandem", "shard")
        backup = containers.execute("index-0", *shard, "backup", "/store/shard", "/store/backups")
        assert backup.returncode == 0, backup
        (made,) = (tmp_path / "volumes" / "store-0" / "backups").iterdir()
        source = f"/store/backups/{made.name}"
        restored = containers.execute("index-0", *shard, "restore", source, "/store/again")
        assert restored.returncode == 0, restored
        # The script that the backup's pod runs in a shard's, on another folder.
        (job,) = of_kind(rendered("full"), "CronJob")
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        script = pod["containers"][0]["args"][-1].replace("/backups", "/store/nightly")
        nightly = containers.execute("index-1", "sh", "-ec", script)
        assert nightly.returncode == 0, nightly
        assert len([*(tmp_path / "volumes" / "store-1" / "nightly").iterdir()]) == 1
        assert set(runner.stop().values()) == {0}


def test_images_have_every_command_and_module_that_manifests_name(tmp_path: Path) -> None:
    """Of every overlay, also those that need a GPU or certificates to run."""
    named = {
        (container.spec["image"], *container.spec.get("command", [])[:1], container.module)
        for overlay in OVERLAYS
        for workload in workloads(rendered(overlay))
        for container in workload.containers()
        if container.spec["image"] in IMAGES
    }
    commands = {(image, *rest) for image, *rest, _ in named if rest}
    modules = sorted({module for _, *_, module in named if module})
    assert {image for image, *_ in named} == set(IMAGES)
    assert "tandem.chassis.tls_proxy" in modules
    # What services need by their settings: a remote cross-encoder, buckets, Postgres.
    modules += ["httpx2", "obstore", "psycopg"]

    with Containers(tmp_path, {"here": []}) as containers:
        for number, image in enumerate(IMAGES):
            containers.start(
                ContainerPlan(
                    name=f"c{number}",
                    image=image,
                    host="here",
                    entrypoint=["sleep", "60"],
                    mounts=[Mount("/tmp")],
                )
            )
            containers.wait_until_running(f"c{number}")
        for image, command in commands:
            there = containers.execute(f"c{IMAGES.index(image)}", "sh", "-c", f"which {command}")
            assert there.returncode == 0, (image, command)
        finds = "import sys, importlib.util as u; print([u.find_spec(m) for m in sys.argv[1:]])"
        specs = containers.execute("c0", "python", "-c", finds, *modules, "torch")

        # The positive control: torch is not in it.
        assert specs.stdout.count("ModuleSpec(") == len(modules), specs
        assert specs.stdout.rstrip().endswith("None]"), specs
