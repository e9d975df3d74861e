"""`tandem neighbours build`: from a checkpoint and a corpus to a file of lists."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.contract.content import Modality
from tandem.corpus.scenes.records import scene_records
from tandem.evaluation.gallery import make_gallery
from tandem.evaluation.offline import OfflineGallery
from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export_manifest import export_manifest
from tandem.neighbours.neighbour_file import load_neighbours, read_manifest
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

ENGLISH = ("--language", "en", "--count", "8")


@pytest.fixture(scope="module", name="checkpoint")
def _checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model that knows the words of the scenes below."""
    folder = tmp_path_factory.mktemp("checkpoint")
    captions = (said.text for each in scene_records("train", 1, 8) for said in each.captions)
    save_tiny_checkpoint(folder, seed=4, texts=tuple(captions))
    return folder


def run(*arguments: str) -> tuple[int, str]:
    """Returns the exit status, and what was printed with the error."""
    result = CliRunner().invoke(app, ["neighbours", "build", *arguments])
    return result.exit_code, result.output + str(result.exception or "")


def test_a_file_has_what_the_model_gives(checkpoint: Path, tmp_path: Path) -> None:
    """Embeddings, pools and their logits, in the order of ids."""
    path = tmp_path / "train.neighbours"

    status, printed = run(
        str(path), "--checkpoint", str(checkpoint), *ENGLISH, "--k", "6", "--rerank-k", "2"
    )

    assert status == 0, printed
    assert "8 images and 8 texts with 6 neighbours each, BE + CE 2" in printed
    gallery = make_gallery(scene_records("train", 1, 8), ["en"])
    encoded = OfflineGallery(load_checkpoint(checkpoint), gallery)
    near, by_id = load_neighbours(path), gallery.tie_order(Modality.IMAGE)
    assert near.image_ids == sorted(gallery.item_ids[Modality.IMAGE])
    assert_allclose(near.images, encoded.embeddings(Modality.IMAGE)[by_id])
    texts_by_id = np.asarray(gallery.tie_order(Modality.TEXT))
    assert_array_equal(np.asarray(by_id)[near.image_of_text], texts_by_id)
    pools = encoded.score(Modality.TEXT, 2)
    found = texts_by_id[near.lists["texts_of_image"]]
    assert_array_equal(found, pools.retrieved[by_id, :6])
    assert_allclose(near.image_pool_logits, pools.logits[by_id])
    logits = encoded.score(Modality.IMAGE, 2).logits
    assert_allclose(near.text_pool_logits, logits[texts_by_id])


def test_the_manifest_names_model_and_corpus(checkpoint: Path, tmp_path: Path) -> None:
    """The fingerprint is the served model's; other scenes have another digest."""
    common = ("--checkpoint", str(checkpoint), *ENGLISH, "--k", "4", "--on-error", "skip")
    for name, seed in [("a", "1"), ("b", "1"), ("c", "2")]:
        status, printed = run(str(tmp_path / name), *common, "--seed", seed)
        assert status == 0, printed

    first, again, other = (read_manifest(tmp_path / name) for name in "abc")
    files = CheckpointFiles.read(checkpoint)
    assert first.model_fingerprint == export_manifest(files, Precision.FP32, {}).fingerprint
    assert (first.corpus, first.split, first.base) == ("scenes", "train", "BE")
    assert first == again
    assert other.corpus_sha256 != first.corpus_sha256


def test_what_cannot_be_built_is_named(checkpoint: Path, tmp_path: Path) -> None:
    common = ("--checkpoint", str(checkpoint), *ENGLISH)

    for arguments, message in [
        (("--k", "9"), "lists of 9 neighbours need as many images, and the corpus has 8"),
        (("--k", "2", "--rerank-k", "4"), "a pool of 4 exceeds lists of 2"),
        (("--k", "2", "--language", "xx"), "no record has a caption in 'xx'"),
    ]:
        status, printed = run(str(tmp_path / "none"), *common, *arguments)
        assert status == 1
        assert message in printed
    status, printed = run(str(tmp_path), *common)
    assert (status, "is a folder" in printed) == (1, True)
    assert list(tmp_path.iterdir()) == []
