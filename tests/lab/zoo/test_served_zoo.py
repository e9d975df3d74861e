"""The exported functions of a model of the zoo give what the model gives."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.lab.zoo.checkpoint import load_zoo_checkpoint
from tandem.lab.zoo.config import ZooName
from tandem.lab.zoo.served import read_zoo_model
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.published_export import export_published
from tests.support.zoo.tiny_zoo import all_regions, save_tiny_zoo, tiny_tokens


def test_a_model_that_embeds_is_exported_as_a_bi_encoder(tmp_path: Path) -> None:
    """The export compares every length and batch with the eager modules; so does this, once."""
    save_tiny_zoo(tmp_path / "zoo", "vse_pp")
    published = read_zoo_model(tmp_path / "zoo")

    manifest = export_published(published, tmp_path / "repository", Precision.FP32)

    assert isinstance(manifest, Manifest)
    assert (manifest.family, manifest.embedding_dim) == ("zoo_vse_pp", 16)
    assert not manifest.has_pairs
    text = torch.jit.load(str(tmp_path / "repository" / "text_encoder" / "1" / "model.pt"))
    ids, mask = torch.tensor([[1, 5, 7, 2, 0]]), torch.tensor([[1, 1, 1, 1, 0]])
    model = load_zoo_checkpoint(tmp_path / "zoo").model
    with torch.inference_mode():
        assert torch.allclose(text(ids, mask), model.embed_texts(ids, mask), atol=1e-5)


# What each computes is in test_zoo_networks, and all are exported by the same code.
@pytest.mark.parametrize("name", ["sgr", "dime_i2t"])
def test_a_pair_scorer_reranks_for_an_embedding_model(tmp_path: Path, name: ZooName) -> None:
    """Any two serve together; the logits are those of the loaded checkpoint."""
    save_tiny_zoo(tmp_path / "be", "vse_pp")
    save_tiny_zoo(tmp_path / "ce", name, seed=1)
    retriever, reranker = (read_zoo_model(tmp_path / each) for each in ("be", "ce"))

    manifest = export_published(
        retriever, tmp_path / "repository", Precision.FP32, reranker=reranker
    )

    assert manifest.family == f"zoo_vse_pp+zoo_{name}"
    assert manifest.has_pairs
    with pytest.raises(ValueError, match="which finds nothing by itself"):
        export_published(reranker, tmp_path / "alone", Precision.FP32)
    pair = torch.jit.load(str(tmp_path / "repository" / "pair_encoder" / "1" / "model.pt"))
    ids, mask = torch.tensor([[1, 5, 7, 2, 0]]), torch.tensor([[1, 1, 1, 1, 0]])
    tokens = tiny_tokens(1)
    model = load_zoo_checkpoint(tmp_path / "ce").model
    with torch.inference_mode():
        logits = pair(ids, mask, tokens, all_regions(tokens))
        assert torch.allclose(logits[:, 0], model.match_logits(ids, mask, tokens), atol=1e-4)


def test_lower_precisions_are_exported_too(tmp_path: Path) -> None:
    """Linear layers are lowered; the export is compared with the lowered modules."""
    save_tiny_zoo(tmp_path / "be", "vse_pp")
    save_tiny_zoo(tmp_path / "ce", "saf", seed=1)

    manifest = export_published(
        read_zoo_model(tmp_path / "be"),
        tmp_path / "repository",
        Precision.INT8,
        reranker=read_zoo_model(tmp_path / "ce"),
    )

    assert manifest.precision == Precision.INT8


def test_a_model_that_does_both_gives_tokens_with_its_embedding(tmp_path: Path) -> None:
    """A picture is read once, as CAMERA's views for pairs and their mean for an index."""
    save_tiny_zoo(tmp_path / "zoo", "camera")

    manifest = export_published(
        read_zoo_model(tmp_path / "zoo"), tmp_path / "repository", Precision.FP32
    )

    assert manifest.has_pairs
    assert manifest.functions.image_tokens == "image_encoder"
    model = load_zoo_checkpoint(tmp_path / "zoo").model
    image = torch.jit.load(str(tmp_path / "repository" / "image_encoder" / "1" / "model.pt"))
    pixels = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    with torch.inference_mode():
        embeddings, tokens = image(pixels)
        expected = model.image_backbone(pixels)
        assert torch.allclose(tokens.float(), expected.float(), atol=1e-3)
        assert torch.allclose(embeddings, model.embed_images(expected, 0), atol=1e-4)


@pytest.mark.parametrize("name", ["vse_infinity", "vsrn", "saem"])
def test_every_tower_is_exported(tmp_path: Path, name: ZooName) -> None:
    save_tiny_zoo(tmp_path / "zoo", name)

    manifest = export_published(
        read_zoo_model(tmp_path / "zoo"), tmp_path / "repository", Precision.FP32
    )

    assert not manifest.has_pairs


def test_models_of_regions_are_exported(tmp_path: Path) -> None:
    """Regions are the image tokens, and those of the mask alone count."""
    inputs: dict[str, Any] = {"image_source": "regions", "region_count": 6}
    save_tiny_zoo(tmp_path / "be", "vse_infinity", **inputs)
    save_tiny_zoo(tmp_path / "ce", "saf", seed=1, **inputs)

    manifest = export_published(
        read_zoo_model(tmp_path / "be"),
        tmp_path / "repository",
        Precision.FP32,
        reranker=read_zoo_model(tmp_path / "ce"),
    )

    assert manifest.regions is not None
    assert str(manifest.regions) == "6 regions of 2,048 features"
    assert (manifest.image, manifest.pair_image, manifest.functions.image_tokens) == (None,) * 3
    regions = torch.randn(2, 6, manifest.token_width).half()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    other = regions.clone()
    other[1, 2:] = 7.0
    ids = torch.tensor([[1, 5, 7, 2, 0], [1, 3, 2, 0, 0]])
    words = (ids > 0).long()
    be, ce = (load_zoo_checkpoint(tmp_path / each).model for each in ("be", "ce"))
    with torch.inference_mode():
        embed, score = (
            torch.jit.load(str(tmp_path / "repository" / each / "1" / "model.pt"))
            for each in ("image_encoder", "pair_encoder")
        )
        wanted = be.embed_images(regions, 0, mask)
        assert torch.allclose(embed(regions, mask), wanted, atol=1e-5)
        assert torch.allclose(embed(other, mask), wanted, atol=1e-5)
        logits = ce.match_logits(ids, words, regions, mask)
        assert torch.allclose(score(ids, words, regions, mask)[:, 0], logits, atol=1e-4)
        assert torch.allclose(score(ids, words, other, mask)[:, 0], logits, atol=1e-4)


def test_models_of_different_pictures_are_not_served_together(tmp_path: Path) -> None:
    """An item has regions or pixels, and as many regions for both models."""
    save_tiny_zoo(tmp_path / "be", "vse_pp", image_source="regions", region_count=6)
    save_tiny_zoo(tmp_path / "pixels", "saf")
    save_tiny_zoo(tmp_path / "more", "saf", image_source="regions", region_count=9)
    retriever = read_zoo_model(tmp_path / "be")

    for name, reads in {"pixels": "pixels", "more": "9 regions of 2,048 features"}.items():
        with pytest.raises(ValueError, match=f"6 regions of 2,048 features and zoo_saf {reads};"):
            export_published(
                retriever,
                tmp_path / "repository",
                Precision.FP32,
                reranker=read_zoo_model(tmp_path / name),
            )
    assert not (tmp_path / "repository").exists()


def test_a_gru_has_no_pt2(tmp_path: Path) -> None:
    """torch.export writes it for one length of text; the error says what to do."""
    save_tiny_zoo(tmp_path / "zoo", "vse_pp")

    with pytest.raises(ValueError, match=r"no model\.pt2 of it; leave --pt2 out"):
        export_published(
            read_zoo_model(tmp_path / "zoo"),
            tmp_path / "repository",
            Precision.FP32,
            with_pt2=True,
        )
    assert not (tmp_path / "repository" / "manifest.json").exists()
