"""Published encoders: ours gives what theirs gives, and what is no such encoder is refused.

The reference is transformers itself, on tiny random models that it wrote.
Shapes: B rows, T text tokens, L positions, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.torch import load_file, save_file
from torch import Tensor

from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.published.files import (
    PublishedCheckpointInvalid,
    weight_files,
)
from tests.support.grid import drawn
from tests.support.modeling.published_folders import published_bert, published_xlm_r

if TYPE_CHECKING:
    from transformers import BertModel, XLMRobertaModel

    Published = BertModel | XLMRobertaModel
import shutil

# torch's own comparison imports two seconds of distributed tensors.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
# Rows of 7, 4 and 2 tokens. 4 to 11 are words; padding is 0 in BERT and 1 in XLM-R.
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]])


def started(folder: Path, *, halved: bool = False) -> JointEncoder:
    """Returns the encoder of a model that begins from the folder, in evaluation mode."""
    published = PublishedCheckpoint.open(str(folder))
    published = published.halved() if halved else published
    model = JointModel(published.config).eval()
    published.start(model.joint_encoder)
    return model.joint_encoder  # type: ignore[return-value]


def texts(pad_id: int) -> Tensor:
    """Returns random words, int64 [3, 7], padded as MASK says."""
    ids = torch.randint(4, 12, MASK.shape, generator=torch.Generator().manual_seed(0))
    return ids.masked_fill(MASK == 0, pad_id)


@torch.inference_mode()
def our_hidden_states(encoder: JointEncoder, ids: Tensor) -> Tensor:
    """Returns [B, T, D] of texts, each with five absent image tokens."""
    tokens = torch.randn(3, 5, encoder.image_project.in_features)
    absent = torch.zeros(3, 5, dtype=torch.int64)
    return encoder.hidden_states(ids, MASK, tokens, absent)[:, : ids.shape[1]]


@torch.inference_mode()
def their_hidden_states(published: Published, ids: Tensor) -> Tensor:
    """Returns [B, T, D] as transformers computes it."""
    return published(ids, attention_mask=MASK).last_hidden_state


@pytest.mark.parametrize(
    ("publish", "pad_id"),
    [
        (published_bert, 0),
        (lambda folder: published_bert(folder, width=384, layer_count=6, head_count=12), 0),
        (lambda folder: published_bert(folder, type_count=1), 0),
        (published_xlm_r, 1),
    ],
    ids=["bert", "minilm", "bert-of-one-type", "xlm-r"],
)
def test_texts_become_the_published_models_token_ids(
    tmp_path: Path, publish: Callable[[Path], Published], pad_id: int
) -> None:
    published = publish(tmp_path)
    ids = texts(pad_id)

    ours = our_hidden_states(started(tmp_path), ids)

    theirs = their_hidden_states(published, ids)
    assert_allclose(ours[MASK.bool()], theirs[MASK.bool()], **CLOSE)
    assert theirs[MASK.bool()].std() > 0.1  # not everything is near 0


@torch.inference_mode()
def test_the_embedding_is_the_mean_of_the_published_hidden_states(tmp_path: Path) -> None:
    published = published_bert(tmp_path)
    ids = texts(0)

    model = JointModel(PublishedCheckpoint.open(str(tmp_path)).config).eval()
    PublishedCheckpoint.open(str(tmp_path)).start(model.joint_encoder)

    hidden_TD = their_hidden_states(published, ids)[1, :4]
    mean_D = hidden_TD.mean(0)
    assert_allclose(model.embed_texts(ids, MASK)[1], mean_D / mean_D.norm(), **CLOSE)


@torch.inference_mode()
def test_the_match_head_starts_as_the_published_pooler(tmp_path: Path) -> None:
    """Its half for the mean is 0, so at first it reads the first token as BERT's does."""
    published = published_bert(tmp_path)
    encoder, ids = started(tmp_path), texts(0)
    pooled: list[Tensor] = []
    encoder.classifier.register_forward_hook(lambda _, inputs, __: pooled.append(inputs[0]))

    encoder(ids, MASK, torch.zeros(3, 1, 32), torch.zeros(3, 1, dtype=torch.int64))

    assert_allclose(pooled[0], published(ids, attention_mask=MASK).pooler_output, **CLOSE)


def test_half_of_the_layers_are_every_second_from_the_first(tmp_path: Path) -> None:
    """Of 0, 1, 2, 3, 4 it is 0, 2, 4; what comes of them is what transformers makes of these."""
    published = published_bert(tmp_path, layer_count=5)

    encoder = started(tmp_path, halved=True)

    assert len(encoder.layers) == 3
    published.encoder.layer = torch.nn.ModuleList(published.encoder.layer[n] for n in (0, 2, 4))
    theirs = their_hidden_states(published, texts(0))
    assert_allclose(our_hidden_states(encoder, texts(0))[MASK.bool()], theirs[MASK.bool()], **CLOSE)


def test_image_tokens_begin_at_the_scale_of_words(tmp_path: Path) -> None:
    published = published_bert(tmp_path)

    encoder = started(tmp_path)

    norm = published.embeddings.LayerNorm
    for own in (encoder.embedding_norm, encoder.image_norm):
        assert torch.equal(own.weight, norm.weight)
        assert torch.equal(own.bias, norm.bias)
    types = published.embeddings.token_type_embeddings.weight
    assert torch.equal(encoder.token_type, types)  # type: ignore[arg-type]


def test_the_tokenizer_neither_pads_nor_cuts(tmp_path: Path) -> None:
    """What its file asks for would make every caption 40 tokens long."""
    published_bert(tmp_path)

    tokenizer = PublishedCheckpoint.open(str(tmp_path)).tokenizer

    assert tokenizer.encode("Two dogs").tokens == ["[CLS]", "two", "dogs", "[SEP]"]
    assert len(tokenizer.encode("dogs " * 50).ids) == 52


@pytest.mark.parametrize("prefix", ["bert.", "roberta."])
def test_a_model_with_a_head_gives_its_encoder(tmp_path: Path, prefix: str) -> None:
    published = published_bert(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {
        prefix
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for name, weight in weights.items()
    }
    head = {"cls.predictions.bias": torch.zeros(20), "classifier.weight": torch.zeros(2, 32)}
    counters = {f"{prefix}embeddings.position_ids": torch.arange(80)[None]}
    save_file(renamed | head | counters, tmp_path / "model.safetensors")

    ours = our_hidden_states(started(tmp_path), texts(0))

    theirs = their_hidden_states(published, texts(0))
    assert_allclose(ours[MASK.bool()], theirs[MASK.bool()], **CLOSE)


def test_a_pooler_is_not_needed(tmp_path: Path) -> None:
    published_bert(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: each for name, each in weights.items() if not name.startswith("pooler.")}
    save_file(kept, tmp_path / "model.safetensors")

    encoder = started(tmp_path)

    assert encoder.pooler.weight[:, 32:].abs().min() > 0


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_of_tensors_is_read(tmp_path: Path, *, is_sharded: bool, is_zip: bool) -> None:
    published_bert(tmp_path)
    expected = started(tmp_path).state_dict()
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(weights)
    parts = [names[::2], names[1::2]] if is_sharded else [names]
    files = [f"pytorch_model-{n}.bin" for n in range(2)] if is_sharded else ["pytorch_model.bin"]
    for file, part in zip(files, parts, strict=True):
        part_weights = {name: weights[name] for name in part}
        torch.save(part_weights, tmp_path / file, _use_new_zipfile_serialization=is_zip)
    if is_sharded:
        index = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))

    found = started(tmp_path).state_dict()

    for name, weight in found.items():
        # The rest is random.
        if name.startswith(("word.", "layers.", "embedding_norm.", "token_type")):
            assert torch.equal(weight, expected[name]), name
    assert [path.name for path in weight_files(tmp_path)] == files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cposix\nsystem\n(S'touch opened'\ntR.", "or would run code, and is not opened any"),
        (b"", "is empty"),
    ],
)
def test_a_pickle_of_more_than_tensors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    """Nothing of it runs, and torch's advice to open it all the same is not passed on."""
    published_bert(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(content)

    with pytest.raises(PublishedCheckpointInvalid, match=message) as refusal:
        started(tmp_path)

    assert "weights_only" not in str(refusal.value)
    assert not (tmp_path / "opened").exists()


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    """The list of files is the publisher's; it leads out of the folder nowhere."""
    published_bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"pooler.dense.bias": "../elsewhere.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(PublishedCheckpointInvalid, match=r"index.json names '\.\./elsewhere"):
        started(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "gpt2", 'model_type is "gpt2"'),
        ("max_position_embeddings", 63, "63 positions hold no texts of 64 tokens"),
        ("vocab_size", 11, "the id 11, and the model has 11 tokens"),
        ("hidden_size", None, "KeyError 'hidden_size'"),
    ],
)
def test_an_encoder_of_another_kind_is_refused_by_field(
    tmp_path: Path, field: str, value: str | int | bool | None, message: str
) -> None:
    published_bert(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    fields = {k: v for k, v in (fields | {field: value}).items() if v is not None}
    (tmp_path / "config.json").write_text(json.dumps(fields))

    with pytest.raises(PublishedCheckpointInvalid, match=message):
        PublishedCheckpoint.open(str(tmp_path))


def test_xlm_r_needs_two_positions_more(tmp_path: Path) -> None:
    published_xlm_r(tmp_path)

    assert PublishedCheckpoint.open(str(tmp_path), 80).config.max_text_tokens == 80
    with pytest.raises(PublishedCheckpointInvalid, match="82 positions hold no texts of 81"):
        PublishedCheckpoint.open(str(tmp_path), 81)


def test_a_name_is_looked_up_among_what_was_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for known in ("tiny", "older"):
        model = tmp_path / f"models--someone--{known}-bert"
        published_bert(model / "snapshots/abc")
        (model / "refs").mkdir()
        (model / "refs/main").write_text("abc")
    weights = tmp_path / "models--someone--older-bert/snapshots/abc/model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()

    for name in ("someone/tiny-bert", "someone/older-bert"):
        assert PublishedCheckpoint.open(name).config.width == 32
    for name in ("someone/else", "/no/such/folder"):
        with pytest.raises(PublishedCheckpointInvalid, match=f"{name} is neither a folder nor a"):
            PublishedCheckpoint.open(name)


def test_a_checkpoint_that_began_with_it_has_its_shape_and_special_ids(tmp_path: Path) -> None:
    for publish, ids in ((published_bert, (2, 0)), (published_xlm_r, (0, 1))):
        folder = tmp_path / publish.__name__
        publish(folder)
        published = PublishedCheckpoint.open(str(folder))
        model = JointModel(published.config)
        published.start(model.joint_encoder)
        save_checkpoint(folder / "ours", model, published.tokenizer, {})

        loaded = load_checkpoint(folder / "ours")
        manifest = export_manifest(loaded.files, Precision.FP32, {})

        assert loaded.model.config == published.config
        assert (manifest.cls_id, manifest.text.pad_id) == ids
        loaded.model.config = replace(loaded.model.config, norm_epsilon=1e-3)
        save_checkpoint(tmp_path / "other", loaded.model, loaded.tokenizer, {})
        other = export_manifest(CheckpointFiles.read(tmp_path / "other"), Precision.FP32, {})
        assert other.fingerprint != manifest.fingerprint


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
@pytest.mark.parametrize("is_pickle", drawn([False, True], "odd weight"))
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
