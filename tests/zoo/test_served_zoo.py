"""The exported functions of a model of the zoo give what the model gives."""

from pathlib import Path

import pytest
import torch

from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import Precision
from tandem.modeling.export.published_export import export_published
from tandem.zoo.checkpoint import load_zoo_checkpoint
from tandem.zoo.served import read_zoo_model
from tests.support.zoo.tiny_zoo import save_tiny_zoo


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


def test_a_model_of_regions_is_not_served(tmp_path: Path) -> None:
    """Its error says what to do."""
    save_tiny_zoo(tmp_path, "vse_pp", image_source="regions")

    with pytest.raises(ValueError, match="reads a detector's regions"):
        read_zoo_model(tmp_path)
