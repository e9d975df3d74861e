"""Adds a version to a running Triton, tries it and removes the old one; no call fails."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.errors import ModelOutputInvalid, ModelUnavailable
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.version_check import VersionRefused, check_version
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.model_io.repository.model_version import version_folder
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.export.version_export import export_version
from tandem.stack.free_ports import free_ports
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer
from tandem.triton.versions import TritonRefused, TritonVersions
from tests.support.triton.tiny_triton import Serving, with_lone_instances

pytestmark = pytest.mark.xdist_group("triton-versions")

LOGIT_SHIFT = 40.0
GOOD, TOO_WIDE, DAMAGED, REVERSED, RETRAINED = 2, 3, 4, 5, 6


class TooWide(torch.nn.Module):
    """A joint encoder whose embeddings have a dimension too many."""

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
        """As the inner one."""
        embedding, logit = self.inner(input_ids, text_mask, image_tokens, image_mask)
        return torch.cat([embedding, embedding[:, :1]], dim=1), logit


@pytest.fixture(name="repository", scope="module")
def _repository(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, tiny_repository: Path
) -> Path:
    """A repository with a good version, one whose answers have another shape, and a damaged one."""
    folder = tmp_path_factory.mktemp("versions")
    repository = with_lone_instances(tiny_repository, folder / "repository")
    checkpoint = load_checkpoint(tiny_checkpoint)
    encoder = checkpoint.model.joint_encoder
    with torch.no_grad():
        encoder.classifier.bias[1] += LOGIT_SHIFT
    save_checkpoint(folder / "good", checkpoint.model, checkpoint.tokenizer, {})
    assert export_version(folder / "good", repository) == GOOD
    wide = (
        shutil.copytree(version_folder(repository, GOOD), version_folder(repository, TOO_WIDE))
        / "model.pt"
    )
    torch.jit.save(torch.jit.script(TooWide(torch.jit.load(str(wide)))), str(wide))
    version_folder(repository, DAMAGED).mkdir()
    (version_folder(repository, DAMAGED) / "model.pt").write_bytes(b"no TorchScript")
    weight = encoder.classifier.weight
    assert isinstance(weight, torch.Tensor)
    torch.manual_seed(0)
    other = weight + 0.5 * weight.std() * torch.randn_like(weight)
    for version, changed in {REVERSED: weight.flip(0), RETRAINED: other}.items():
        with torch.no_grad():
            weight.copy_(changed.clone())
        name = str(version)
        save_checkpoint(folder / name, checkpoint.model, checkpoint.tokenizer, {})
        assert export_version(folder / name, repository) == version
    return repository


@pytest.fixture(name="server", scope="module")
def _server(repository: Path) -> Iterator[TritonServer]:
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=repository.with_name("log"),
        thread_count=1,
        is_swappable=True,
    )
    server.start()
    yield server
    server.stop()


async def logits(model: ServedModel) -> list[float]:
    """Returns what the cross-encoder says of a made-up pair, three times over."""
    manifest = model.manifest
    ids = np.array([2, 7, 3], dtype=np.int32)
    tokens = np.ones((manifest.image_token_count, manifest.token_width), dtype=np.float16)
    scored = await model.match_logits([ids] * 3, [tokens] * 3, 10.0)
    return [float(logit) for logit in scored.values]


async def test_a_version_replaces_another(
    server: TritonServer, repository: Path, tiny_manifest: Manifest
) -> None:
    """Every inference is of the version it asks for, before, during and after; a broken one is
    refused, and what served continues. `benchmarks/runs/swaps.py` breaks more.
    """
    versions = TritonVersions(server)
    client = TritonClient(server.address)
    first = ServedModel(client, tiny_manifest)
    [base, *_] = await logits(first)
    ended = asyncio.Event()

    async def keep_asking() -> int:
        count = 0
        while not ended.is_set():
            assert await logits(first) == pytest.approx([base] * 3, abs=1e-3)
            count += 1
            await asyncio.sleep(0.01)  # or it takes a core from the loading
        return count

    asking = asyncio.create_task(keep_asking())
    await asyncio.to_thread(versions.load, GOOD)
    await check_version(first.at(GOOD), first)
    assert await logits(first.at(GOOD)) == pytest.approx([base + LOGIT_SHIFT] * 3, abs=1e-3)
    assert not server.has_lost_process()

    await asyncio.to_thread(versions.load, TOO_WIDE)  # Triton has no objection
    with pytest.raises(
        ModelOutputInvalid, match=r"OUTPUT__0 is float32 \[1, 33\], expected float32 \[1, 32\]"
    ):
        await check_version(first.at(TOO_WIDE), first)
    await asyncio.to_thread(versions.unload, TOO_WIDE)
    with pytest.raises(TritonRefused, match="version 4 is at UNAVAILABLE state"):
        await asyncio.to_thread(versions.load, DAMAGED)
    assert not versions.is_loaded(DAMAGED)

    await asyncio.to_thread(versions.load, REVERSED)
    with pytest.raises(VersionRefused, match=r"rank correlation -(1\.00|0\.99)"):
        await check_version(first.at(REVERSED), first)
    await asyncio.to_thread(versions.load, RETRAINED)
    assert await logits(first.at(RETRAINED)) != pytest.approx([base] * 3, abs=1e-3)
    await check_version(first.at(RETRAINED), first)
    for version in (REVERSED, RETRAINED):
        await asyncio.to_thread(versions.unload, version)

    ended.set()
    assert await asking > 20, "too little was asked to tell"
    # Triton answers first and counts what it answered afterwards.
    async with asyncio.timeout(60):
        while versions.idle_seconds(GOOD) >= 2:
            await logits(first.at(GOOD))
    await asyncio.to_thread(versions.unload, 1)
    assert await logits(first.at(GOOD)) == pytest.approx([base + LOGIT_SHIFT] * 3, abs=1e-3)
    with pytest.raises(ModelUnavailable):
        await logits(first)
    assert not server.has_lost_process()
    await client.close()


def test_a_server_gets_no_load_request_without_a_swap(shared_triton: Serving) -> None:
    """Such a call can run code of its sender's; the test above is the control."""
    with grpc.insecure_channel(shared_triton.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="load / unload is not allowed"):
            stub.RepositoryModelLoad(
                service_pb2.RepositoryModelLoadRequest(model_name=JOINT_ENCODER), timeout=5.0
            )
