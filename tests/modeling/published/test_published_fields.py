"""What others publish may be odd in every field: it is refused by name, or it is what it says."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_folders import published_bert

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 438000000\n"
)


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    published_bert(folder)
    return folder


@pytest.fixture(name="folder")
def _folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "published")


def refusal(folder: Path) -> str:
    """Returns why a folder is refused; nothing where a model starts from it."""
    try:
        published = PublishedCheckpoint.open(str(folder))
        model = JointModel(published.config)
        published.start(model.joint_encoder)
    except PublishedCheckpointInvalid as error:
        return str(error)
    return ""


NO_OBJECTS = {
    "a list": b"[]",
    "cut": b'{"model_type": "bert", ',
    "a git-lfs pointer": LFS_POINTER,
}


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
def test_an_invalid_file_is_named(folder: Path, name: str) -> None:
    if "index" in name:
        (folder / "model.safetensors").unlink()
    for content in NO_OBJECTS.values():
        (folder / name).write_bytes(content)
        why = refusal(folder)
        assert name in why
        assert ("git lfs pull" in why) == (content == LFS_POINTER)


def test_damaged_weights_are_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    for content in (path.read_bytes()[:-1], b"\xff" * 8 + b"{}"):
        path.write_bytes(content)
        assert "model.safetensors is damaged or cut short" in refusal(folder)


Weights = dict[str, torch.Tensor]
WORD, BIAS = "embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"
WEIGHT_EDITS: dict[str, Callable[[Weights], object]] = {
    "integers": lambda weights: weights.update({BIAS: torch.ones(32, dtype=torch.int8)}),
    "turned": lambda weights: weights.update({WORD: weights[WORD].T.contiguous()}),
    "missing": lambda weights: weights.pop(BIAS),
    "unexpected": lambda weights: weights.update({BIAS.replace("1", "9"): torch.ones(32)}),
    "infinite": lambda weights: weights[BIAS][3].fill_(float("-inf")),
}


@pytest.mark.parametrize("edit", WEIGHT_EDITS.values(), ids=WEIGHT_EDITS.keys())
@pytest.mark.parametrize("is_pickle", [False, True])
def test_an_odd_weight_is_named(
    folder: Path, edit: Callable[[Weights], Any], is_pickle: bool
) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    path.unlink()
    if is_pickle:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, path)

    why = refusal(folder)

    assert any(name in why for name in (WORD, BIAS, BIAS.replace("1", "9")))


def test_an_oversized_view_is_not_allocated(folder: Path) -> None:
    """A pickle of a few bytes that is expanded to 3 TB."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weights[WORD] = torch.zeros(1, 1).expand(10_000_000, 65_536)
    torch.save(weights, folder / "pytorch_model.bin")

    assert f"{WORD} is not a plain tensor" in refusal(folder)


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "\x85", "\x0b", "two", "dogs"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_newlines_end_the_lines_of_a_vocabulary(folder: Path, end: str) -> None:
    """Of U+2028 and its like there are tokens, and those behind keep their numbers."""
    (folder / "tokenizer.json").unlink()
    text = end.join(VOCABULARY) + end
    (folder / "vocab.txt").write_bytes(text.encode())

    found = PublishedCheckpoint.open(str(folder)).tokenizer

    assert found.encode("Two dogs").ids == [2, 8, 9, 3]
    assert found.get_vocab_size() == len(VOCABULARY)
