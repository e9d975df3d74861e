"""Our Python-based `pytorch` backend, inside a real Triton."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tandem.errors import ModelUnavailable
from tandem.model_io.inference.model_runner import OutputSpec
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import config_file, model_file
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.triton.client import TritonClient
from tests.support.triton.metrics import Counts, counted
from tests.support.triton.odd_models import (
    MOODY,
    REVERSED,
    REVERSED_INPUT_COUNT,
    UNBATCHED,
    write_odd_models,
)
from tests.support.triton.tiny_triton import Serving, serving

pytestmark = pytest.mark.xdist_group("odd-models")

TIMEOUT_SECONDS = 20.0


async def test_positions_count_not_the_order_in_the_config(triton_client: TritonClient) -> None:
    """INPUT__i is forward's argument i and OUTPUT__i its result i, also past ten."""
    inputs = {
        f"INPUT__{number}": np.full((2, 1), number, dtype=np.float32)
        for number in range(REVERSED_INPUT_COUNT)
    }
    outputs = [
        OutputSpec("OUTPUT__0", np.float32, (REVERSED_INPUT_COUNT,)),
        OutputSpec("OUTPUT__1", np.float32, (1,)),
    ]

    answer = await triton_client.infer(REVERSED, inputs, outputs, TIMEOUT_SECONDS)
    everything, difference = answer.arrays

    assert everything.tolist() == [list(range(REVERSED_INPUT_COUNT))] * 2
    assert difference.tolist() == [[-11], [-11]]


async def test_a_model_without_batches_gets_what_was_sent(triton_client: TritonClient) -> None:
    """max_batch_size 0: requests at once are still run one by one."""

    async def double(size: int) -> list[float]:
        values = np.arange(size, dtype=np.float32)
        output = OutputSpec("OUTPUT__0", np.float32, ())
        answer = await triton_client.infer(UNBATCHED, {"x": values}, [output], TIMEOUT_SECONDS)
        [array] = answer.arrays
        return array.tolist()

    answers = await asyncio.gather(*(double(size) for size in (1, 2, 3, 4)))

    assert answers == [[2.0 * n for n in range(size)] for size in (1, 2, 3, 4)]


async def test_waiting_requests_run_in_one_batch(
    triton_client: TritonClient, shared_triton: Serving
) -> None:
    """One execution for requests of different sizes; each gets its own rows."""
    before = Counts.at_rest(shared_triton.metrics_url, MOODY)

    answers = await asyncio.gather(*(_plus_one(triton_client, [n] * n) for n in (1, 2, 3)))

    assert answers == [[2], [3, 3], [4, 4, 4]]
    counts = counted(shared_triton.metrics_url, MOODY, before, inference_count=6)
    assert counts.inferences == 6
    assert counts.executions < 3


async def test_a_request_that_fails_fails_alone(
    triton_client: TritonClient, shared_triton: Serving
) -> None:
    """What the model refuses in a batch does not harm the requests that came with it."""
    before = Counts.at_rest(shared_triton.metrics_url, MOODY)

    first, bad, last = await asyncio.gather(
        _plus_one(triton_client, [1]),
        _plus_one(triton_client, [-1]),
        _plus_one(triton_client, [3]),
        return_exceptions=True,
    )

    assert (first, last) == ([2], [4])
    assert isinstance(bad, ModelUnavailable)
    assert "no negative numbers" in bad.message
    counts = counted(shared_triton.metrics_url, MOODY, before, inference_count=3)
    assert counts.inferences == 3  # the refused one was read too
    assert counts.executions < 3


async def _plus_one(client: TritonClient, numbers: list[int]) -> list[float]:
    values = np.repeat(np.array(numbers, dtype=np.float32)[:, None], 3, axis=1)
    output = OutputSpec("OUTPUT__0", np.float32, (3,))
    answer = await client.infer(MOODY, {"x": values}, [output], TIMEOUT_SECONDS)
    [array] = answer.arrays
    return array[:, 0].tolist()


@pytest.mark.slow
async def test_both_formats_are_served_equally(
    tiny_checkpoint: Path, triton_client: TritonClient, tmp_path: Path
) -> None:
    """An archive of torch.export answers as the TorchScript of the same weights does."""
    manifest = export_model(tiny_checkpoint, tmp_path, Precision.FP32, with_pt2=True)
    for name in manifest.models:
        model_file(tmp_path, name).unlink()
        config = config_file(tmp_path, name)
        config.write_text(config.read_text() + 'default_model_filename: "model.pt2"\n')
    random = np.random.default_rng(0)
    size = manifest.image.size
    pixels = random.integers(0, 256, (5, size, size, 3), dtype=np.uint8)
    texts = [random.integers(4, 40, length, dtype=np.int32) for length in (2, 7, 30, 64)]

    async def answers(client: TritonClient) -> list[NDArray[np.floating]]:
        model = ServedModel(client, manifest)
        images = (await model.encode_images(pixels, TIMEOUT_SECONDS)).values
        assert images.tokens is not None
        tokens = list(images.tokens[: len(texts)])
        embedded = await model.embed_texts(texts, TIMEOUT_SECONDS)
        scored = await model.match_logits(texts, tokens, TIMEOUT_SECONDS)
        return [images.embeddings, images.tokens, embedded.values, scored.values]

    with serving(tmp_path) as running:
        client = TritonClient(running.address)
        archived = await answers(client)
        await client.close()

    for one, other in zip(archived, await answers(triton_client), strict=True):
        np.testing.assert_allclose(one, other, atol=5e-3 if one.dtype == np.float16 else 1e-4)
        assert np.abs(one - other[::-1]).max() > 1e-2  # positive control


# What the backend does in a stub of Triton's, without the server: its own module there has what a
# request is, which a start does not need.
_STUB = """
import gc, json, runpy, sys, types
sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")
backend, repository, config = sys.argv[1:]
instance = runpy.run_path(backend)["TritonPythonModel"]()
loaded = len(gc.get_objects())
def start(config):
    instance.initialize({
        "model_config": config, "model_repository": repository, "model_version": "1",
        "model_instance_kind": "CPU",
    })
start(config)
traces = "torch._meta_registrations" in sys.modules
print(loaded, len(gc.get_objects()), int(gc.isenabled()), int(traces))
for inputs, outputs in [("y", "OUTPUT__0"), ("INPUT__1", "OUTPUT__0"), ("x", "doubled")]:
    try:
        start(json.dumps({"input": [{"name": inputs}], "output": [{"name": outputs}]}))
    except ValueError as error:
        print(error)
"""


def test_an_instance_of_torchscript_loads_and_collects_little(tmp_path: Path) -> None:
    """A full collection in the middle of a batch walks what came since the start alone, and what
    only traces need is not imported. A config that does not fit the model ends the start.
    """
    write_odd_models(tmp_path)
    config = {"input": [{"name": "x"}], "output": [{"name": "OUTPUT__0"}]}
    backend = Path(__file__).parents[3] / "deploy/triton/backends/pytorch/model.py"
    command = [sys.executable, "-W", "ignore", "-c", _STUB, str(backend)]

    told = subprocess.check_output(
        [*command, str(tmp_path / UNBATCHED), json.dumps(config)], text=True
    )

    figures, *errors = told.splitlines()
    loaded, walked, collects, traces = map(int, figures.split())
    assert loaded > 100_000  # positive control: what it walked before the start ended
    assert walked < 2_000
    assert collects
    assert not traces
    assert errors == [
        f"['{name}'] are not NAME__0, NAME__1 and on" for name in ("y", "INPUT__1", "doubled")
    ]
