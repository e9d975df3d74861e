"""What others publish may be odd in every field: it is refused by name, or it is what it says."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_folders import WORDS, published_bert, published_xlm_r

LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 438000000\n"
)
# A type that no field has, a number that none has, and one for which no memory is taken.
ODD_VALUES: tuple[Any, ...] = ("384", -1, 10**12, None)
READ_FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "layer_norm_eps", "type_vocab_size"),
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
        published.start(model.joint_encoder)  # type: ignore[arg-type]
    except PublishedCheckpointInvalid as error:
        return str(error)
    return ""


def write_fields(folder: Path, **changes: object) -> None:
    """Changes fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_odd_values_of_fields_are_refused_by_name(folder: Path) -> None:
    assert refusal(folder) == ""
    for name in READ_FIELDS:
        said = json.loads((folder / "config.json").read_text())
        for value in ODD_VALUES:
            write_fields(folder, **{name: value})
            assert f"{name} is" in refusal(folder), (name, value)
        write_fields(folder, **said)


def test_unused_fields_may_be_anything(folder: Path) -> None:
    """As they are added with every release of the library."""
    write_fields(folder, initializer_range=["whatever"])

    assert refusal(folder) == ""


def test_another_padding_is_refused(tmp_path: Path) -> None:
    """Positions of RoBERTa begin behind it; another would be another function."""
    published_xlm_r(tmp_path)
    assert refusal(tmp_path) == ""
    write_fields(tmp_path, pad_token_id=0)

    assert "pad_token_id" in refusal(tmp_path)


NO_OBJECTS = {
    "a list": b"[]",
    "nothing": b"",
    "cut": b'{"model_type": "bert", ',
    "nested deep": b"[" * 1_000_000,
    "not UTF-8": b'{"model_type": "\xff\xfe"}',
    "a git-lfs pointer": LFS_POINTER,
}


@pytest.mark.parametrize("content", NO_OBJECTS.values(), ids=NO_OBJECTS.keys())
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
def test_an_invalid_file_is_named(folder: Path, name: str, content: bytes) -> None:
    """Whatever else it is; a git-lfs pointer with what to do about it."""
    (folder / name).write_bytes(content)
    if "index" in name:
        (folder / "model.safetensors").unlink()

    why = refusal(folder)

    assert name in why
    assert ("git lfs pull" in why) == (content == LFS_POINTER)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (LFS_POINTER, "git lfs pull"),
        (b"", "is empty"),
        (b"\xff" * 8 + b"{}", "damaged or cut short"),
        ((1 << 20).to_bytes(8, "little") + b"[" * (1 << 20), "damaged or cut short"),
    ],
    ids=["git-lfs pointer", "empty", "a header of 16 EiB", "a header nested deep"],
)
def test_invalid_weights_are_named(folder: Path, content: bytes, says: str) -> None:
    (folder / "model.safetensors").write_bytes(content)

    why = refusal(folder)

    assert "model.safetensors" in why
    assert says in why


def test_weights_cut_short_are_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    assert re.search(r"model\.safetensors is damaged or cut short", refusal(folder))


Weights = dict[str, torch.Tensor]
WORD, BIAS = "embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"
WEIGHT_EDITS: dict[str, Callable[[Weights], object]] = {
    "integers": lambda weights: weights.update({BIAS: torch.ones(32, dtype=torch.int8)}),
    "turned": lambda weights: weights.update({WORD: weights[WORD].T.contiguous()}),
    "missing": lambda weights: weights.pop(BIAS),
    "infinite": lambda weights: weights[BIAS][3].fill_(float("-inf")),
    "of no numbers": lambda weights: weights.update({BIAS: torch.zeros(32, dtype=torch.complex64)}),
}


@pytest.mark.parametrize("edit", WEIGHT_EDITS.values(), ids=WEIGHT_EDITS.keys())
@pytest.mark.parametrize("is_pickle", [False, True])
def test_an_odd_weight_is_named(
    folder: Path, edit: Callable[[Weights], Any], is_pickle: bool
) -> None:
    """In either format, before a model is made."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    path.unlink()
    if is_pickle:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, path)

    why = refusal(folder)

    assert any(name in why for name in (WORD, BIAS))


def test_an_oversized_view_is_not_allocated(folder: Path) -> None:
    """A pickle of a few bytes that is expanded to 3 TB."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weights[WORD] = torch.zeros(1, 1).expand(10_000_000, 65_536)
    torch.save(weights, folder / "pytorch_model.bin")

    assert f"{WORD} is not a plain tensor" in refusal(folder)


def shards(folder: Path) -> Iterator[Path]:
    """Divides the weights into two files and their index; yields the two."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    placed: dict[str, Any] = {}
    for number, names in enumerate((sorted(weights)[::2], sorted(weights)[1::2])):
        path = folder / f"model-{number}.safetensors"
        save_file({name: weights[name] for name in names}, path)
        placed |= dict.fromkeys(names, path.name)
        yield path
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed}))


def test_a_shard_that_is_missing_is_named(folder: Path) -> None:
    _, second = shards(folder)
    assert refusal(folder) == ""
    second.unlink()

    assert second.name in refusal(folder)


@pytest.mark.parametrize("placed", [None, {"a": 1}, {"a": "../b.safetensors"}])
def test_an_index_that_places_nothing_is_named(folder: Path, placed: object) -> None:
    """Whatever it says instead."""
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))

    assert "model.safetensors.index.json" in refusal(folder)


def tokenizer(**changes: Any) -> Tokenizer:
    """Returns a tokenizer of the folder's model with these changes."""
    ids = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3} | {w: 4 + n for n, w in enumerate(WORDS)}
    ids |= changes.get("ids", {})
    for word in changes.get("without", ()):
        ids.pop(word)
    made = Tokenizer(models.WordPiece(ids, unk_token=changes.get("unknown", "[UNK]")))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = changes.get("ends", (("[SEP]", 3), ("[CLS]", 2)))
    if ends:
        made.post_processor = processors.BertProcessing(*ends)
    return made


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ids": {"cat": 500}}, "'cat' the id 500"),
        ({"without": WORDS[2:], "ids": {"two": 4}}, "the tokenizer has 6 tokens"),
        ({"without": ["[PAD]"]}, "lacks special tokens"),
        ({"without": ["[UNK]"]}, "cannot split"),
        ({"ends": None}, "around a text"),
    ],
    ids=str,
)
def test_a_tokenizer_of_another_model_is_refused(
    folder: Path, changes: dict[str, Any], says: str
) -> None:
    """By its ids, its special tokens and what it cannot split."""
    tokenizer().save(str(folder / "tokenizer.json"))
    assert refusal(folder) == ""
    tokenizer(**changes).save(str(folder / "tokenizer.json"))

    assert says in refusal(folder)


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


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("vocab.txt", "\n".join(VOCABULARY[2:]).encode(), "lacks [UNK]"),
        ("vocab.txt", b"\xff\xfe", "is not UTF-8"),
        ("vocab.txt", LFS_POINTER, "git lfs pull"),
    ],
)
def test_an_invalid_vocabulary_is_named(folder: Path, name: str, content: bytes, says: str) -> None:
    """By its file and what is wrong with it."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    assert refusal(folder) == ""
    (folder / name).write_bytes(content)

    why = refusal(folder)

    assert says in why
    assert name in why


def test_the_vocabulary_decides_lower_casing(folder: Path) -> None:
    """As tokenizer_config.json does of a cased model."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')

    assert PublishedCheckpoint.open(str(folder)).tokenizer.encode("Two").ids == [2, 1, 3]
