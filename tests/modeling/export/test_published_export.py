"""Published models as Triton models: two towers, a cross-encoder of theirs or of another family."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.model_io.pictures.image_rules import Fit
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    model_file,
    read_manifest,
)
from tandem.model_io.repository.model_repository import idle_configs, stored_models
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import Role, TokenSource
from tandem.modeling.export.export import export_model
from tandem.modeling.export.exported import ExportedModel, ExportMismatch
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.export.pooled_tokens import pooled, pooled_count
from tandem.modeling.export.published_export import export_published, published_modules
from tandem.modeling.export.published_manifest import PublishedPair, published_manifest
from tandem.modeling.export.verification import verify_repository
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model
from tests.support.modeling.published_cross_encoders import published_blip
from tests.support.modeling.published_pairs import published_clip, published_siglip
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.repository.native_rules import read_config

# On one worker: its tests share what takes long to make.
pytestmark = [
    pytest.mark.xdist_group("export"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PublishedModel]:
    """Tiny random ones, read as anyone's."""
    made: dict[str, Callable[[Path], object]] = {
        "clip": published_clip,
        "siglip": published_siglip,
        "blip": published_blip,
    }
    folder = tmp_path_factory.mktemp("published")
    for name, make in made.items():
        (folder / name).mkdir()
        make(folder / name)
    return {name: read_published_model(folder / name) for name in made}


@pytest.fixture(scope="module")
def clip_repository(
    models: dict[str, PublishedModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """CLIP, exported. Not to be changed."""
    folder = tmp_path_factory.mktemp("clip")
    export_published(models["clip"], folder, Precision.FP32)
    return folder


@pytest.fixture(scope="module")
def pair_repository(
    models: dict[str, PublishedModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """SigLIP, reranked by BLIP, exported. Not to be changed: copy it."""
    folder = tmp_path_factory.mktemp("pair")
    export_published(models["siglip"], folder, Precision.FP32, reranker=models["blip"])
    return folder


def test_a_bi_encoder_alone_scores_no_pairs(clip_repository: Path) -> None:
    manifest = read_manifest(clip_repository)

    assert verify_repository(clip_repository) == manifest
    assert manifest.models.keys() == {"text_encoder", "image_encoder"}
    assert not manifest.has_pairs
    assert (manifest.pair_text, manifest.image_token_count, manifest.default_fusion) == (
        None,
        0,
        "none",
    )


def test_one_model_gives_all_three_functions(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    manifest = export_published(models["blip"], tmp_path, Precision.FP32)

    assert verify_repository(tmp_path) == manifest == read_manifest(tmp_path)
    assert manifest.models["image_encoder"].outputs == (Role.EMBEDDING, Role.IMAGE_TOKENS)
    assert manifest.has_one_picture
    assert manifest.default_fusion == "add"
    assert manifest.pair_text is not None
    assert manifest.pair_text.first_id is not None
    assert manifest.text.first_id is None
    config = read_config(tmp_path / "pair_encoder" / "config.pbtxt")
    assert [each.name for each in config.input] == [f"INPUT__{n}" for n in range(4)]


def test_two_families_have_their_own_rules(
    models: dict[str, PublishedModel], pair_repository: Path
) -> None:
    siglip, blip = models["siglip"], models["blip"]

    manifest = verify_repository(pair_repository)

    assert manifest.family == "siglip+blip"
    assert manifest.functions.image_tokens == "pair_image_encoder"
    assert not manifest.has_one_picture
    assert siglip.bi_encoder is not None
    assert blip.cross_encoder is not None
    assert manifest.pair_text is not None
    assert (manifest.text, manifest.image) == (siglip.bi_encoder.text, siglip.bi_encoder.image)
    assert manifest.pair_text.tokenizer == "pair_tokenizer.json"
    assert manifest.pair_text.max_tokens == blip.cross_encoder.text.max_tokens
    assert manifest.tokenizers.keys() == {"tokenizer.json", "pair_tokenizer.json"}
    # BLIP adds its own similarity; SigLIP's scale is unknown.
    assert manifest.default_fusion == "none"
    described = manifest.checkpoint["models"]
    assert [each["family"] for each in described] == ["siglip", "blip"]
    assert described[1]["files_sha256"] == blip.files_sha256
    assert set(manifest.licence.split(" and ")) == {siglip.licence, blip.licence}


def test_no_part_names_a_device(clip_repository: Path) -> None:
    """transformers makes masks and positions on the way, which must be where the input is."""
    for part in read_manifest(clip_repository).models:
        graph = str(torch.jit.load(str(model_file(clip_repository, part))).inlined_graph)
        constants = re.findall(r'(%\S+) : Device = prim::Constant\[value="cpu"\]', graph)
        assert not [each for each in constants if graph.count(f"{each}, ") > 0]


def test_a_cross_encoder_alone_finds_nothing(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    alone = replace(models["blip"], bi_encoder=None)

    with pytest.raises(ValueError, match="blip is a cross-encoder, which finds nothing by itself"):
        export_published(alone, tmp_path, Precision.FP32)
    with pytest.raises(ValueError, match="clip scores no pairs, so it cannot rerank"):
        export_published(models["siglip"], tmp_path, Precision.FP32, reranker=models["clip"])

    assert not list(tmp_path.iterdir())


@torch.inference_mode()
def test_lower_precision_is_near(models: dict[str, PublishedModel]) -> None:
    bi_encoder = models["clip"].bi_encoder
    assert bi_encoder is not None
    ids = torch.randint(0, 30, (4, 8), generator=torch.Generator().manual_seed(0))
    whole = bi_encoder.embed_text(ids, torch.ones_like(ids))

    lower = lowered_part(bi_encoder.embed_text, Precision.INT8)(ids, torch.ones_like(ids))

    assert 0.99 < (lower * whole).sum(-1).min() < 1 - 1e-7
    assert torch.equal(bi_encoder.embed_text(ids, torch.ones_like(ids)), whole)  # is left alone


def test_outputs_of_other_weights_are_noticed(
    models: dict[str, PublishedModel], clip_repository: Path
) -> None:
    """Positive control of the comparison that every export passes."""
    manifest = read_manifest(clip_repository)
    files = {name: model_file(clip_repository, name) for name in manifest.models}
    pair = PublishedPair(retriever=models["clip"], reranker=None)
    modules = dict(published_modules(pair, TokenSource.STORED))
    ExportedModel.load(manifest, files).compare(modules)

    siglip = models["siglip"].bi_encoder
    assert siglip is not None
    with pytest.raises(ExportMismatch, match="image_encoder"):
        ExportedModel.load(manifest, files).compare(modules | {"image_encoder": siglip.embed_image})


def fingerprint(model: PublishedModel, **changed: Any) -> str:
    """The fingerprint after a change of the rules for texts or pictures."""
    assert model.bi_encoder is not None
    rules = {
        name: replace(getattr(model.bi_encoder, name), **values) for name, values in changed.items()
    }
    other = replace(model, bi_encoder=replace(model.bi_encoder, **rules))
    pair = PublishedPair(retriever=other, reranker=None)
    return published_manifest(pair, Precision.FP32, TokenSource.STORED).fingerprint


def test_every_rule_is_in_the_fingerprint(models: dict[str, PublishedModel]) -> None:
    changes: list[dict[str, dict[str, Any]]] = [
        {"image": {"fit": Fit.SQUASH, "resize_to": None}},
        {"image": {"is_exact": False}},
        {"text": {"is_lower_case": True}},
        {"text": {"prompt": "a photo of "}},
        {"text": {"reads_padding": True}},
        {"text": {"pad_id": 1}},
        {"text": {"lengths": (77,)}},
    ]
    found = [fingerprint(models["clip"], **changed) for changed in [{}, {}, *changes]]

    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(changes)


def test_the_source_of_tokens_is_in_the_fingerprint(models: dict[str, PublishedModel]) -> None:
    pair = PublishedPair(retriever=models["blip"], reranker=models["blip"])
    manifests = [published_manifest(pair, Precision.FP32, tokens) for tokens in TokenSource]

    assert len({each.fingerprint for each in manifests}) == 3
    assert [each.image_token_count for each in manifests] == [17, 5, 17]


def test_pooled_tokens_are_the_means_of_blocks() -> None:
    grid = torch.arange(9, dtype=torch.float16).view(1, 9, 1)
    tokens = torch.cat([torch.full((1, 1, 1), 100.0).half(), grid], dim=1)

    # Rows 0 1 2, 3 4 5, 6 7 8: blocks {0 1 3 4}, {2 5}, {6 7}, {8}.
    assert pooled(tokens)[0, :, 0].tolist() == [100.0, 2.0, 3.5, 6.5, 8.0]
    assert pooled(tokens).shape[1] == pooled_count(10)
    with pytest.raises(ValueError, match="11 image tokens are not a square grid"):
        pooled_count(11)


def test_pooled_tokens_are_made_by_the_exported_graph(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    blip, siglip = models["blip"], models["siglip"]
    one = export_published(blip, tmp_path / "1", Precision.FP32, tokens=TokenSource.POOLED)
    two = export_published(
        siglip, tmp_path / "2", Precision.FP32, reranker=blip, tokens=TokenSource.POOLED
    )

    for folder, manifest in (("1", one), ("2", two)):
        assert verify_repository(tmp_path / folder).image_token_count == 5
        assert manifest.tokens is TokenSource.POOLED


def test_another_model_leaves_nothing_that_triton_would_load(
    models: dict[str, PublishedModel], pair_repository: Path, tmp_path: Path
) -> None:
    repository = shutil.copytree(pair_repository, tmp_path / "repository")
    assert (repository / "pair_encoder").exists()
    theirs = repository / "theirs" / "config.pbtxt"
    theirs.parent.mkdir()
    theirs.write_text('name: "theirs"')

    export_published(models["clip"], repository, Precision.FP32)

    names = {path.parent.name for path in repository.glob("*/config.pbtxt")}
    assert names == {"text_encoder", "image_encoder", "theirs"}
    assert not (repository / "pair_encoder").exists()


def test_in_a_checkout_the_shipped_models_configs_stay(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    """git sees no change after another model was added, nor after the first one is back; neither
    `tandem models list` nor `tandem up` takes what stays for a model.
    """
    checkout, checkpoint = tmp_path / "checkout", tmp_path / "checkpoint"
    repository = checkout / "model_repository"
    save_tiny_checkpoint(checkpoint)
    export_model(checkpoint, repository, Precision.FP32)
    shutil.copy(Path(__file__).parents[3] / ".gitignore", checkout)
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    configs = [f"model_repository/{name}/config.pbtxt" for name in (IMAGE_BACKBONE, JOINT_ENCODER)]
    assert git(checkout, "ls-files") == [".gitignore", *configs]

    export_published(models["clip"], repository, Precision.FP32)

    assert changes(checkout) == []
    assert idle_configs(repository) == {checkout / name for name in configs}
    assert [each.name for each in stored_models(repository)] == ["image_encoder", "text_encoder"]
    export_model(checkpoint, repository, Precision.FP32)
    assert changes(checkout) == []
    assert not (repository / "text_encoder").exists()
    assert idle_configs(repository) == set()
    (checkout / configs[0]).unlink()
    assert changes(checkout) == [configs[0]]  # positive control


def changes(checkout: Path) -> list[str]:
    """Returns what git would show of tracked and new files."""
    new = git(checkout, "ls-files", "--others", "--exclude-standard")
    return [*git(checkout, "diff", "--name-only"), *new]


def git(folder: Path, *arguments: str) -> list[str]:
    """Returns the lines that git prints of the folder."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_both_formats_pass_one_comparison(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    manifest = export_published(models["blip"], tmp_path, Precision.FP32, with_pt2=True)

    assert all(model.pt2_sha256 for model in manifest.models.values())
    assert verify_repository(tmp_path) == manifest
    (tmp_path / "text_encoder" / "1" / "model.pt2").write_bytes(b"another")
    with pytest.raises(ValueError, match=r"model\.pt2 is not the file that its manifest describes"):
        verify_repository(tmp_path)


def test_an_archive_in_int8_is_refused_before_anything_is_written(
    models: dict[str, PublishedModel], tmp_path: Path
) -> None:
    """torch.export would end with an error of its own, after the minute of the other format."""
    with pytest.raises(ValueError, match="leave --pt2 out"):
        export_published(models["clip"], tmp_path, Precision.INT8, with_pt2=True)
    assert list(tmp_path.iterdir()) == []
