"""A real Triton behind the proxy: certificates both ways, and their rotation under inferences."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import trustme

from tandem.chassis.tls_proxy import TlsProxy
from tandem.errors import ModelUnavailable
from tandem.model_io.inference.model_runner import OutputSpec
from tandem.triton.client import TritonClient
from tests.support.chassis.authority import Files
from tests.support.triton.odd_models import MOODY
from tests.support.triton.tiny_triton import Serving

pytestmark = pytest.mark.xdist_group("odd-models")

OUTPUT = OutputSpec("OUTPUT__0", np.float32, (3,))


async def infer(client: TritonClient, timeout_seconds: float = 20.0) -> None:
    """Makes one inference; raises a TandemError."""
    rows = np.ones((2, 3), dtype=np.float32)
    answer = await client.infer(MOODY, {"x": rows}, [OUTPUT], timeout_seconds)
    assert answer.arrays[0].shape == (2, 3)


async def until_answered(client: TritonClient) -> None:
    """Returns once the client has connected again; raises its last error where it does not."""
    for _ in range(20):
        try:
            await infer(client)
        except ModelUnavailable:
            await asyncio.sleep(0.2)
        else:
            return
    await infer(client)


# tests/security/test_rotation.py rotates those of all services, Triton's aside.
@pytest.mark.slow
async def test_no_inference_fails_while_every_certificate_changes(
    shared_triton: Serving, tmp_path: Path
) -> None:
    """An authority takes over from another, as in production: trusted first, then shown."""
    old, new = trustme.CA(), trustme.CA()
    proxy_files, caller_files = Files(tmp_path / "triton"), Files(tmp_path / "encoder")
    for files in (proxy_files, caller_files):
        files.write(old)
    target = ("127.0.0.1", shared_triton.grpc_port)
    proxy = TlsProxy(proxy_files.identity(), "127.0.0.1", 0, target)
    await proxy.start()
    identity = caller_files.identity()
    address = f"localhost:{proxy.port}"
    client = TritonClient(address, identity=identity)
    try:
        await infer(client)
        steps = [(old, (old, new)), (new, (old, new)), (new, (new,))]
        for authority, trusted in steps:
            for files in (proxy_files, caller_files):
                files.write(authority, trusted=trusted)
                # Callers look once a second.
                for _ in range(15):
                    await infer(client)
                    await asyncio.sleep(0.1)

        # Connections that are open shake hands no more; a new one needs the new certificate.
        port = proxy.port
        await proxy.close()
        proxy = TlsProxy(proxy_files.identity(), "127.0.0.1", port, target)
        await proxy.start()
        await until_answered(client)

        # The control: who shows the authority before is refused now.
        late_files = Files(tmp_path / "late")
        late_files.write(old, trusted=(new,))
        late = TritonClient(address, identity=late_files.identity())
        try:
            with pytest.raises(ModelUnavailable):
                await infer(late, timeout_seconds=60.0)
        finally:
            await late.close()
    finally:
        await client.close()
        await proxy.close()


async def test_plain_text_finds_no_model(shared_triton: Serving, tmp_path: Path) -> None:
    files = Files(tmp_path / "triton")
    files.write(trustme.CA())
    target = ("127.0.0.1", shared_triton.grpc_port)
    proxy = TlsProxy(files.identity(), "127.0.0.1", 0, target)
    await proxy.start()
    client = TritonClient(f"127.0.0.1:{proxy.port}")
    try:
        with pytest.raises(ModelUnavailable):
            await infer(client, timeout_seconds=60.0)
    finally:
        await client.close()
        await proxy.close()
