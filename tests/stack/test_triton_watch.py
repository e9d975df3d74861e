"""What a local Triton is not restarted over."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.model_io.repository.manifest import MANIFEST_NAME, Manifest
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.triton_watch import FAILED_CANARY_COUNT, TritonWatch
from tandem.triton.server import TritonUnavailable


@pytest.fixture(name="stack")
def _stack(tiny_repository: Path, tmp_path: Path) -> Iterator[LocalStack]:
    """Over a copy of the small model, with no Triton that answers."""
    repository = shutil.copytree(tiny_repository, tmp_path / "repository")
    (tmp_path / "logs").mkdir()
    with LocalStack(tmp_path, repository, Ports.free(1)) as stack:
        yield stack


def manifest_path(stack: LocalStack) -> Path:
    """Returns the file that tells what the stack's repository holds."""
    return stack.model_repository / MANIFEST_NAME


def test_triton_is_not_restarted_over_another_model(
    stack: LocalStack, tiny_manifest: Manifest
) -> None:
    """As after tandem models add into the repository that serves: searches would be wrong."""
    replace(tiny_manifest, fingerprint="b" * 64).write(manifest_path(stack))

    with TritonWatch(stack, tiny_manifest) as watch:
        looks = [watch.look() for _ in range(FAILED_CANARY_COUNT - 1)]
        with pytest.raises(TritonUnavailable, match=r"holds model bbbbbbbbbbbb.*start Tandem"):
            watch.look()

    assert looks == [None] * (FAILED_CANARY_COUNT - 1)
    assert stack.triton is None


def test_triton_is_not_restarted_over_half_an_export(
    stack: LocalStack, tiny_manifest: Manifest
) -> None:
    """One that broke off, or is in progress, has no manifest."""
    manifest_path(stack).unlink()

    with TritonWatch(stack, tiny_manifest) as watch:
        for _ in range(FAILED_CANARY_COUNT - 1):
            watch.look()
        with pytest.raises(ValueError, match="has no model of ours"):
            watch.look()

    assert stack.triton is None
