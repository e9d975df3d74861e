"""Sep+Coop as one checkpoint: the BE embeds, the CE reads pairs, and no caller need know."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tandem.model_io.repository.manifest import Manifest, read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.export.lowered import lowered
from tandem.modeling.export.verification import verify_repository
from tandem.modeling.export.version_export import export_version
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_checkpoint import combine
from tests.support.modeling.separate_checkpoint import save_be_and_ce
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_model, tiny_tokenizer

ROW_COUNT, TEXT_LENGTH = 5, 9
CLS_ID = 2


@pytest.fixture(name="folders", scope="module")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    # Of one kind of layer: what is put together here is the same for either.
    return save_be_and_ce(tmp_path_factory.mktemp("two"))


@pytest.fixture(name="combined", scope="module")
def _combined(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one") / "combined"
    combine(*folders, folder)
    return folder


def pairs() -> tuple[Tensor, Tensor, Tensor]:
    """Returns random texts, their masks and image tokens."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(4, 20, (ROW_COUNT, TEXT_LENGTH), generator=generator)
    return ids, torch.ones_like(ids), torch.randn(ROW_COUNT, 49, 16, generator=generator).half()


@torch.inference_mode()
def answers(model: JointModel) -> dict[str, Tensor]:
    """Returns what users get of a model: embeddings of both kinds, and logits."""
    ids, mask, tokens = pairs()
    return {
        "texts": model.embed_texts(ids, mask),
        "images": model.embed_images(tokens, CLS_ID),
        "logits": model.match_logits(ids, mask, tokens),
    }


def differ(one: Tensor, other: Tensor) -> bool:
    """Returns whether two answers are clearly apart."""
    return bool((one - other).abs().max() > 1e-2)


def test_a_side_alone_is_read_by_the_be_and_a_pair_by_the_ce(
    folders: tuple[Path, Path], combined: Path
) -> None:
    be, ce = (answers(load_checkpoint(folder).model) for folder in folders)

    both = answers(load_checkpoint(combined).model)

    for name in ("texts", "images"):
        assert torch.equal(both[name], be[name])
        assert differ(be[name], ce[name])
    assert torch.equal(both["logits"], ce["logits"])
    assert differ(be["logits"], ce["logits"])


def test_an_export_equals_the_two_encoders(
    folders: tuple[Path, Path], combined: Path, tmp_path: Path
) -> None:
    be, ce = (answers(load_checkpoint(folder).model) for folder in folders)
    manifest = export_model(combined, tmp_path / "repository", Precision.FP32)
    encoder = torch.jit.load(str(tmp_path / "repository/joint_encoder/1/model.pt"))
    ids, mask, tokens = pairs()
    cls = torch.full((ROW_COUNT, 1), CLS_ID)
    every = torch.ones(ROW_COUNT, 49, dtype=torch.int64)
    nothing, absent = torch.zeros_like(tokens[:, :1]), torch.zeros_like(cls)

    with torch.inference_mode():
        served = {
            "texts": encoder(ids, mask, nothing, absent)[0],
            "images": encoder(cls, torch.ones_like(cls), tokens, every)[0],
            "logits": encoder(ids, mask, tokens, every)[1][:, 0],
        }

    assert manifest.family == "separate"
    for name, of_one in (be | {"logits": ce["logits"]}).items():
        torch.testing.assert_close(served[name], of_one, atol=1e-5, rtol=0.0)
    assert differ(served["logits"], be["logits"])  # positive control


@pytest.mark.slow
def test_an_archive_equals_the_two_encoders(combined: Path, tmp_path: Path) -> None:
    """The exporter compares it by every kind of input."""
    export_model(combined, tmp_path, Precision.FP32, with_pt2=True)

    assert verify_repository(tmp_path).models["joint_encoder"].pt2_sha256


def test_fewer_bits_apply_to_both_encoders(combined: Path) -> None:
    model = load_checkpoint(combined).model
    whole = answers(model)
    for precision in (Precision.FP16, Precision.BF16, Precision.INT8):
        fewer = answers(lowered(model, precision))
        for name, of_whole in whole.items():
            assert 0 < (fewer[name] - of_whole).abs().max() < 5e-2


def test_verify_knows_the_checkpoint_and_another_be(
    folders: tuple[Path, Path], combined: Path, tmp_path: Path
) -> None:
    export_model(combined, tmp_path / "repository", Precision.FP32)
    fingerprints = {
        export_model(folder, tmp_path / folder.name, Precision.FP32).fingerprint
        for folder in folders
    }

    verified: Manifest = verify_repository(tmp_path / "repository", combined)

    assert verified == read_manifest(tmp_path / "repository")
    assert len({verified.fingerprint, *fingerprints}) == 3
    with pytest.raises(ValueError, match="would export as"):
        verify_repository(tmp_path / "repository", folders[0])


def test_another_ce_is_a_version_of_the_same_model(
    folders: tuple[Path, Path], combined: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    export_model(combined, repository, Precision.FP32)
    combine(folders[0], folders[0], tmp_path / "other")

    version = export_version(tmp_path / "other", repository)

    one, other = (
        torch.jit.load(str(repository / "joint_encoder" / str(number) / "model.pt"))
        for number in (1, version)
    )
    ids, mask, tokens = pairs()
    every = torch.ones(ROW_COUNT, 49, dtype=torch.int64)
    with torch.inference_mode():
        text = (ids, mask, tokens[:, :1], every[:, :1] * 0)
        assert torch.equal(one(*text)[0], other(*text)[0])
        assert differ(one(ids, mask, tokens, every)[1], other(ids, mask, tokens, every)[1])


def test_a_combined_checkpoint_names_its_sources(
    folders: tuple[Path, Path], combined: Path
) -> None:
    made_of = load_checkpoint(combined).training["combined_of"]

    assert list(made_of) == ["bi_encoder", "cross_encoder"]
    for (role, made), folder in zip(made_of.items(), folders, strict=True):
        assert made["weights_sha256"] == load_checkpoint(folder).weights_sha256, role
        assert made["recipe"]["name"] == folder.name


def test_training_steps_reach_the_encoder_they_are_of(combined: Path) -> None:
    model = load_checkpoint(combined).model.train()

    model.match_logits(*pairs()).sum().backward()

    moved = {
        name.split(".")[1] for name, weight in model.named_parameters() if weight.grad is not None
    }
    assert moved == {"cross_encoder"}


def test_what_does_not_fit_is_refused_by_name(folders: tuple[Path, Path], tmp_path: Path) -> None:
    be, ce = folders
    save_tiny_checkpoint(tmp_path / "post", encoder="post_norm")
    # Of as many words, or the shape would tell.
    swapped = shutil.copytree(ce, tmp_path / "swapped")
    tokens = json.loads((swapped / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    last, before = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[last], vocabulary[before] = vocabulary[before], vocabulary[last]
    (swapped / "tokenizer.json").write_text(json.dumps(tokens))
    tokenizer = tiny_tokenizer()
    other = tiny_model(7, tokenizer.get_vocab_size())
    save_checkpoint(tmp_path / "backbone", other, tokenizer, {})
    one = tmp_path / "one"
    combine(be, ce, one)
    weights = (one / "model.safetensors").read_bytes()

    for bi_encoder, cross_encoder, says in (
        (be, tmp_path / "post", "another encoder: pre_norm and post_norm"),
        (be, swapped, "another tokenizer; train the CE with --init BE"),
        (be, tmp_path / "backbone", "another image backbone.*--init BE"),
        (one, one, "combined already"),
    ):
        with pytest.raises(ValueError, match=says):
            combine(bi_encoder, cross_encoder, tmp_path / "made")
    with pytest.raises(ValueError, match="holds a checkpoint already; name another folder"):
        combine(be, ce, one)

    assert not (tmp_path / "made").exists()
    assert (one / "model.safetensors").read_bytes() == weights
