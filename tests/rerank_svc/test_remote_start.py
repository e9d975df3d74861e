"""`python -m rerank_svc` with a remote cross-encoder: no Triton, and settings that name it."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import grpc

from tandem.chassis.calls.channels import open_channel
from tandem.contract.content import TextContent
from tandem.contract.search.answer_wire import content_to_proto
from tandem.model_io.repository.manifest import read_manifest
from tandem.v1 import model_service_pb2
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.model_service_pb2_grpc import ModelServiceStub
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub
from tandem.wire import tokens_to_proto
from tests.support.faults.supervisor import ROOT, Supervised
from tests.support.index_svc.shard_process import is_serving
from tests.support.rerank_svc.remote_api import RemoteApi, Sabotage, remote_api
from tests.support.rerank_svc.remote_shard import RemoteShard
from tests.support.rerank_svc.served_reranker import INDEX_ID, QUERY

START_SECONDS = 60


def environment(api: RemoteApi, repository: Path, folder: Path, **changes: str) -> dict[str, str]:
    settings = {
        "ADDRESS": "127.0.0.1:0",
        "METRICS_PORT": "0",
        "MODEL_REPOSITORY": str(repository),
        "STORE_PATH": str(folder / "shard"),
        "SHARD_NUMBER": "0",
        "SHARD_COUNT": "1",
        "REMOTE_URL": api.url,
        "REMOTE_MODEL": "some-reranker",
        "REMOTE_KEY_FILE": str(folder / "key"),
        "REMOTE_PROBABILITY_SCALE": "2",
    } | changes
    return {f"RERANK_{name}": value for name, value in settings.items()}


class RerankProcess(Supervised):
    """`python -m rerank_svc` with these settings."""

    def __init__(self, settings: dict[str, str], folder: Path) -> None:
        super().__init__([sys.executable, "-m", "rerank_svc"], folder / "rerank.log", settings)

    async def channel(self) -> grpc.aio.Channel:
        """Returns a channel to the process once it listens."""
        end_time = time.monotonic() + START_SECONDS
        while time.monotonic() < end_time and self.ending() is None:
            for line in self.log().splitlines():
                if '"listening"' in line:
                    return open_channel(f"127.0.0.1:{json.loads(line)['port']}")
            await asyncio.sleep(0.05)
        raise AssertionError(self.log())


async def canary_sent(api: RemoteApi) -> None:
    """Waits for ten requests, which are one canary."""
    for _ in range(20 * START_SECONDS):
        if len(api.requests) >= 10:
            return
        await asyncio.sleep(0.05)


async def serves(channel: grpc.aio.Channel) -> bool:
    """Returns whether the service gets ready in its time."""
    end_time = time.monotonic() + START_SECONDS
    while time.monotonic() < end_time:
        if await is_serving(channel):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_service_without_triton_serves_a_remote_model(
    tiny_repository: Path, tmp_path: Path
) -> None:
    """It gets ready once the API passes the canary, and scores with the key that a file has."""
    (tmp_path / "key").write_text("secret-key\n")
    fingerprint = read_manifest(tiny_repository).fingerprint
    RemoteShard(tmp_path / "shard", fingerprint).store.close()
    with remote_api(Sabotage.FLAT) as api:
        process = RerankProcess(environment(api, tiny_repository, tmp_path), tmp_path)
        try:
            async with await process.channel() as channel:
                await canary_sent(api)
                assert not await is_serving(channel)
                api.sabotage = Sabotage.SORTED
                assert await serves(channel)

                scored: pb.ScoreCandidatesResponse = await RerankServiceStub(
                    channel
                ).ScoreCandidates(
                    pb.ScoreCandidatesRequest(
                        index_id=INDEX_ID,
                        query=tokens_to_proto(QUERY),
                        query_content=content_to_proto(TextContent("two dogs")),
                        model_fingerprint=fingerprint,
                        item_ids=["i-0", "i-1"],
                    )
                )
                described = await ModelServiceStub(channel).DescribeModel(
                    model_service_pb2.DescribeModelRequest()
                )
            process.terminate()
        finally:
            process.kill()

    assert all(score.HasField("match_logit") for score in scored.scores)
    assert scored.reranker.startswith("some-reranker@")
    assert described.model.probability_calibration.scale == 2
    assert {each["Authorization"] for each in api.headers} == {"Bearer secret-key"}
    assert "flat" in process.log()
    assert "secret-key" not in process.log()


# Starts the service by each of the variables on stdin, in a process each, of one that has imported
# it; prints how they ended.
STARTS = """
import json, os, runpy, sys
import rerank_svc.__main__
del sys.modules["rerank_svc.__main__"]
endings = []
for variables in json.load(sys.stdin):
    told, tells = os.pipe()
    if not (child := os.fork()):
        os.dup2(tells, 2)
        os.environ.update(variables)
        runpy.run_module("rerank_svc", run_name="__main__", alter_sys=True)
        sys.exit("served")
    os.close(tells)
    with open(told) as stream:
        text = stream.read()
    endings.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text])
print(json.dumps(endings))
"""


def test_a_wrong_setting_ends_the_start_by_name(tiny_repository: Path, tmp_path: Path) -> None:
    """With exit code 2 and no traceback."""
    (tmp_path / "key").write_text("secret-key")
    wrong: list[tuple[dict[str, str], str]] = [
        ({"REMOTE_URL": ""}, "RERANK_TRITON_ADDRESS is not set"),
        ({"REMOTE_URL": "rerank:8000"}, "is not the address of an API"),
        ({"REMOTE_MODEL": ""}, "has no model's name"),
        ({"REMOTE_SHAPE": "cohere"}, "'cohere' is not a valid RemoteShape"),
        ({"REMOTE_KEY_FILE": "/nowhere/key"}, "RERANK_REMOTE_KEY_FILE cannot be read"),
        ({"REMOTE_AUTHORITY_FILE": "/nowhere/ca"}, "RERANK_REMOTE_AUTHORITY_FILE cannot be read"),
        ({"REMOTE_PROBABILITY_SCALE": "-1"}, "RERANK_REMOTE_PROBABILITY_SCALE must be at least 0"),
        (
            {"REMOTE_PROBABILITY_SCALE": "0", "REMOTE_PROBABILITY_BIAS": "1"},
            "RERANK_REMOTE_PROBABILITY_BIAS needs RERANK_REMOTE_PROBABILITY_SCALE",
        ),
    ]
    with remote_api() as api:
        starts = [environment(api, tiny_repository, tmp_path, **changes) for changes, _ in wrong]
        done = subprocess.run(
            [sys.executable, "-c", STARTS],
            input=json.dumps(starts),
            capture_output=True,
            cwd=ROOT,
            text=True,
            timeout=120,
            check=True,
        )

    for (_, says), (code, told) in zip(wrong, json.loads(done.stdout), strict=True):
        assert code == 2, told
        assert says in told
        assert "Traceback" not in told


def test_a_service_with_triton_imports_neither_an_http_client_nor_rich() -> None:
    """What only a remote model or a person's console needs takes no time at a start."""
    program = (
        "import sys, rerank_svc.__main__; "
        "print(sorted({'httpx2', 'rich', 'structlog'} & set(sys.modules))); import rich.console"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=ROOT, text=True, check=True
    )

    assert done.stdout.strip() == "['structlog']"
