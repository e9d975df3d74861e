"""`tandem neighbours build`: from a checkpoint and a corpus to a file of lists."""

import asyncio
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client.testing import FakeServer
from tandem.contract.content import Modality
from tandem.corpus.readers.karpathy import read_karpathy
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import make_gallery
from tandem.lab.evaluation.offline import OfflineGallery
from tandem.lab.neighbours.lists.neighbour_file import load_neighbours
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.region_tokens import RegionFile, write_regions
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures
from tests.support.client.search_server import search_server
from tests.support.corpus.written_karpathy import write_karpathy
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer

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


def test_a_file_holds_the_models_embeddings(checkpoint: Path, tmp_path: Path) -> None:
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


def test_pictures_that_were_trained_on_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    pets, trained = tmp_path / "pets", tmp_path / "trained"
    pets.mkdir()
    for letter, colour in zip("abcd", ("red", "green", "blue", "white"), strict=True):
        Image.new("RGB", (40, 40), colour).save(pets / f"{letter}.png")
        (pets / f"{letter}.txt").write_text(f"two dogs {letter}")
    untouched = load_checkpoint(checkpoint)
    seen = TrainedPictures.of([sha256((pets / "c.png").read_bytes()).digest()])
    save_checkpoint(trained, untouched.model, untouched.tokenizer, {}, trained_pictures=seen)
    common = ("--corpus", f"folder:{pets}", "--split", "all", "--k", "2", "--checkpoint")

    refused, says = run(str(tmp_path / "a"), *common, str(trained))
    of_retriever, also_says = run(
        str(tmp_path / "b"), *common, str(checkpoint), "--retriever", str(trained)
    )
    of_another, output = run(str(tmp_path / "c"), *common, str(checkpoint))
    allowed, told = run(str(tmp_path / "d"), *common, str(trained), "--allow-trained")

    assert (refused, of_retriever, of_another, allowed) == (1, 1, 0, 0), output + told
    for text in (says, also_says):
        assert "1 of 4 pictures were trained on, c first; build lists of others" in text
        assert "--allow-trained" in text
    assert "1 of the images were trained on, c first" in told
    assert [(tmp_path / name).is_file() for name in "abcd"] == [False, False, True, True]


def _worded(folder: Path, said: dict[str, str]) -> str:
    """Writes pictures whose bytes are words, which the fake server reads as such."""
    folder.mkdir()
    for name, words in said.items():
        (folder / f"{name}.png").write_bytes(words.encode())
        (folder / f"{name}.txt").write_text(words)
    return f"folder:{folder}"


def test_the_model_of_a_running_system_embeds(tmp_path: Path) -> None:
    """Its fingerprint is the file's, and an item's nearest is its own partner."""
    said = {"a": "red cup", "b": "green hat", "c": "two blue hats", "d": "cup"}
    corpus = _worded(tmp_path / "pets", said)

    with FakeServer() as server:
        status, printed = run(
            *(str(tmp_path / "file"), "--corpus", corpus, "--split", "all", "--k", "3"),
            *("--address", server.address),
        )

    assert status == 0, printed
    near = load_neighbours(tmp_path / "file")
    assert near.source.model_fingerprint == "fake-of-tandem-client-testing"
    assert (near.base, near.depth, len(near.images)) == ("BE", 3, 4)
    answers = {image: text for text, image in enumerate(near.image_of_text)}
    own = [answers[number] for number in range(4)]
    assert near.lists["texts_of_image"][:, 0].tolist() == own
    assert_allclose(near.images, near.texts[own])


async def test_a_content_that_is_refused_is_named(tmp_path: Path) -> None:
    corpus = _worded(tmp_path / "pets", {"a": "red cup", "b": "no"})

    async with search_server() as (address, _):
        status, printed = await asyncio.to_thread(
            run,
            *(str(tmp_path / "file"), "--corpus", corpus, "--split", "all", "--k", "2"),
            *("--address", address),
        )

    assert status == 1
    assert f"b#en-0 is refused at {address}: the text has no words" in printed


def test_regions_replace_missing_pictures(tmp_path: Path) -> None:
    """A model of a detector's regions embeds them from their file, and says where it is missing."""
    records = list(scene_records("train", 1, 8))
    corpus = write_karpathy(records, tmp_path / "corpus")
    for picture in (corpus.parent / "images").iterdir():
        picture.unlink()
    rng = np.random.default_rng(3)
    made = {each.record_id: rng.random((2, 2054)).astype(np.float16) for each in records}
    write_regions(tmp_path / "regions", made, region_count=2)
    tokenizer = tiny_tokenizer(tuple(each.text for record in records for each in record.captions))
    shape = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        image_source="regions",
    )
    save_checkpoint(tmp_path / "ours", JointModel(shape), tokenizer, {})
    common = (str(tmp_path / "file"), "--corpus", str(corpus), "--language", "en", "--k", "4")

    status, printed = run(
        *common, *("--checkpoint", str(tmp_path / "ours"), "--regions", str(tmp_path / "regions"))
    )
    without, says = run(*common, "--checkpoint", str(tmp_path / "ours"))

    assert (status, without) == (0, 1), printed
    assert "reads a detector's regions, not pixels" in says
    assert "--regions" in says
    gallery = make_gallery(read_karpathy(corpus, corpus.parent / "images", "train"), ["en"])
    encoded = OfflineGallery(
        load_checkpoint(tmp_path / "ours"), gallery, RegionFile(tmp_path / "regions")
    )
    near, by_id = load_neighbours(tmp_path / "file"), gallery.tie_order(Modality.IMAGE)
    assert_allclose(near.images, encoded.embeddings(Modality.IMAGE)[by_id], atol=1e-6)
    assert len(np.unique(near.images, axis=0)) == 8
