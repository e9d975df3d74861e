"""The exported functions of a model of the zoo give what the model gives."""

from pathlib import Path

import pytest
import torch

from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import Precision
from tandem.modeling.export.published_export import export_published
from tandem.zoo.checkpoint import load_zoo_checkpoint
from tandem.zoo.config import ZooName
from tandem.zoo.served import read_zoo_model
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


@pytest.mark.parametrize("name", ["scan_t2i", "scan_i2t", "sgr", "saf", "camp", "dime_i2t"])
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


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_lower_precisions_are_exported_too(tmp_path: Path, precision: Precision) -> None:
    """Linear layers are lowered; the export is compared with the lowered modules."""
    save_tiny_zoo(tmp_path / "be", "vse_pp")
    save_tiny_zoo(tmp_path / "ce", "saf", seed=1)

    manifest = export_published(
        read_zoo_model(tmp_path / "be"),
        tmp_path / "repository",
        precision,
        reranker=read_zoo_model(tmp_path / "ce"),
    )

    assert manifest.precision == precision


def test_a_model_that_does_both_gives_tokens_with_its_embedding(tmp_path: Path) -> None:
    """A picture is read once, as CAMERA's views for pairs and their mean for an index."""
    save_tiny_zoo(tmp_path / "zoo", "camera")

    manifest = export_published(
        read_zoo_model(tmp_path / "zoo"), tmp_path / "repository", Precision.FP32
    )

    assert manifest.has_pairs
    assert manifest.functions.image_tokens == "image_encoder"


@pytest.mark.parametrize("name", ["vse_infinity", "vsrn", "saem"])
def test_every_tower_is_exported(tmp_path: Path, name: ZooName) -> None:
    """The export itself compares each with the eager modules."""
    save_tiny_zoo(tmp_path / "zoo", name)

    manifest = export_published(
        read_zoo_model(tmp_path / "zoo"), tmp_path / "repository", Precision.FP32
    )

    assert not manifest.has_pairs


def test_a_model_of_regions_is_not_served(tmp_path: Path) -> None:
    """Its error says what to do."""
    save_tiny_zoo(tmp_path, "vse_pp", image_source="regions")

    with pytest.raises(ValueError, match="reads a detector's regions"):
        read_zoo_model(tmp_path)
