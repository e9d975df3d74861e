"""An exported model that runs in this process, held to what torch makes of the same file."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tandem.errors import DeadlineExceeded, InternalFault, ModelOutputInvalid, ModelUnavailable
from tandem.model_io.inference.model_runner import OutputSpec
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest, model_file
from tandem.modeling.in_process.in_process_runner import InProcessRunner
from tandem.modeling.in_process.model_threads import ModelThreads


@pytest.fixture(name="runner")
def _runner(tiny_repository: Path, tiny_manifest: Manifest) -> Iterator[InProcessRunner]:
    running = InProcessRunner(tiny_repository, tiny_manifest)
    yield running
    running.close()


def pairs(manifest: Manifest, count: int = 3) -> dict[str, NDArray[np.generic]]:
    """Returns the inputs of the joint encoder for so many pairs."""
    rng = np.random.default_rng(3)
    tokens = rng.normal(size=(count, manifest.image_token_count, manifest.token_width))
    return {
        "INPUT__0": rng.integers(0, 5, (count, 8), dtype=np.int64),
        "INPUT__1": np.ones((count, 8), dtype=np.int64),
        "INPUT__2": tokens.astype(np.float16),
        "INPUT__3": np.ones(tokens.shape[:2], dtype=np.int64),
    }


def outputs(manifest: Manifest) -> list[OutputSpec]:
    """Returns what the joint encoder gives, the second output first."""
    return [
        OutputSpec("OUTPUT__1", np.float32, (1,)),
        OutputSpec("OUTPUT__0", np.float32, (manifest.embedding_dim,)),
    ]


async def test_it_answers_as_the_file_does(
    runner: InProcessRunner, tiny_repository: Path, tiny_manifest: Manifest
) -> None:
    inputs = pairs(tiny_manifest)
    answer = await runner.infer(JOINT_ENCODER, inputs, outputs(tiny_manifest), 60.0)

    module = torch.jit.load(str(model_file(tiny_repository, JOINT_ENCODER)))
    with torch.inference_mode():
        embeddings, logits = module(*(torch.from_numpy(each) for each in inputs.values()))
    np.testing.assert_allclose(answer.arrays[0], logits.numpy(), atol=1e-6)
    np.testing.assert_allclose(answer.arrays[1], embeddings.numpy(), atol=1e-6)
    assert answer.compute_seconds is not None
    assert answer.compute_seconds > 0
    assert runner.is_proven(JOINT_ENCODER)


async def test_read_only_arrays_are_read(runner: InProcessRunner, tiny_manifest: Manifest) -> None:
    inputs = pairs(tiny_manifest)
    for each in inputs.values():
        each.flags.writeable = False
    answer = await runner.infer(JOINT_ENCODER, inputs, outputs(tiny_manifest)[:1], 60.0)
    assert answer.arrays[0].shape == (3, 1)


async def test_faults_have_names(runner: InProcessRunner, tiny_manifest: Manifest) -> None:
    runner.wait_until_loaded()
    inputs, logit = pairs(tiny_manifest), outputs(tiny_manifest)[:1]
    with pytest.raises(InternalFault, match="model joint_encoder refuses its inputs: "):
        await runner.infer(
            JOINT_ENCODER, inputs | {"INPUT__2": inputs["INPUT__2"][:, :, :3]}, logit, 60.0
        )
    wrong = [OutputSpec("OUTPUT__1", np.float32, (2,))]
    with pytest.raises(ModelOutputInvalid, match="OUTPUT__1 is float32"):
        await runner.infer(JOINT_ENCODER, inputs, wrong, 60.0)
    with pytest.raises(ModelUnavailable, match=r"joint_encoder/7/model\.pt"):
        await runner.infer(JOINT_ENCODER, inputs, logit, 60.0, version=7)
    with pytest.raises(DeadlineExceeded, match="the inference of joint_encoder"):
        await runner.infer(JOINT_ENCODER, inputs, logit, 0.0)


async def test_the_program_s_own_torch_keeps_its_threads(
    runner: InProcessRunner, tiny_manifest: Manifest
) -> None:
    """The limit is of the runner's threads, not of this one or of one that begins later."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        await runner.infer(JOINT_ENCODER, pairs(tiny_manifest), outputs(tiny_manifest), 60.0)
        assert torch.get_num_threads() == 3
        assert await asyncio.to_thread(torch.get_num_threads) == 3
    finally:
        torch.set_num_threads(before)


def test_files_that_are_not_there_are_named_once_they_are_needed(
    tmp_path: Path, tiny_manifest: Manifest
) -> None:
    runner = InProcessRunner(tmp_path, tiny_manifest)
    try:
        with pytest.raises(ModelUnavailable, match=str(tmp_path)):
            runner.wait_until_loaded()
        assert not runner.is_proven(JOINT_ENCODER)
    finally:
        runner.close()


@pytest.fixture(name="threads")
def _threads() -> Iterator[ModelThreads]:
    one = ModelThreads(1, "one")
    yield one
    one.close()


async def test_results_and_errors_are_returned(threads: ModelThreads) -> None:
    assert await threads.run(lambda: threading.current_thread().name) == "one_0"
    with pytest.raises(KeyError, match="lost"):
        await threads.run(lambda: {}["lost"])
    assert threads.submit(lambda: 3).result() == 3
    with pytest.raises(KeyError, match="lost"):
        threads.submit(lambda: {}["lost"]).result()


async def test_queued_work_is_dropped_with_its_caller(threads: ModelThreads) -> None:
    is_begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        is_begun.set()
        may_end.wait()
        done.append("first")

    tasks = [
        asyncio.create_task(threads.run(first)),
        asyncio.create_task(threads.run(lambda: done.append("second"))),
    ]
    await asyncio.to_thread(is_begun.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    may_end.set()
    await threads.run(lambda: done.append("third"))

    assert done == ["first", "third"]


def test_a_program_may_end_without_closing_them(threads: ModelThreads) -> None:
    threads.close()
    threads.close()
    assert not threads.submit(lambda: 1).done()
