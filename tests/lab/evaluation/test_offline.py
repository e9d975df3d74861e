"""A gallery scored without a server: against the model asked pair by pair."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from tandem.contract.content import Modality
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import Gallery, make_gallery
from tandem.lab.evaluation.metrics import recall_at
from tandem.lab.evaluation.offline import Fusion, OfflineGallery, ScoredPools
from tandem.lab.evaluation.offline_report import add, norm_add
from tandem.lab.evaluation.ranking import first_answer_ranks
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.region_tokens import RegionFile, write_regions
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.towers.two_towers import TwoTowers
from tests.support.modeling.published_folders import published_xlm_r
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer

SCENE_COUNT = 12
DIRECTIONS = [Modality.IMAGE, Modality.TEXT]
ANSWERS = [{number} for number in range(SCENE_COUNT)]


@pytest.fixture(scope="module")
def gallery() -> Gallery:
    return make_gallery(scene_records("test", 3, SCENE_COUNT), LANGUAGES)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, gallery: Gallery) -> Checkpoint:
    folder = tmp_path_factory.mktemp("offline")
    save_tiny_checkpoint(folder, texts=tuple(caption.text for _, caption in gallery.pairs))
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def offline(checkpoint: Checkpoint, gallery: Gallery) -> OfflineGallery:
    return OfflineGallery(checkpoint, gallery)


@pytest.mark.parametrize("target", DIRECTIONS)
def test_scores_are_the_models_own(
    offline: OfflineGallery, checkpoint: Checkpoint, gallery: Gallery, target: Modality
) -> None:
    """Each similarity and logit as the model gives it for one pair alone, without padding."""
    pools = offline.score(target, SCENE_COUNT)

    assert_pairs_are_the_models_own(pools, checkpoint, gallery, target, cls_id=2)


@pytest.mark.parametrize(
    ("form", "target"),
    [
        ({}, Modality.IMAGE),
        ({"matcher_width": 8}, Modality.TEXT),
        ({"matcher_width": 8, "matcher_has_towers": True}, Modality.IMAGE),
    ],
)
def test_scores_of_two_towers_are_their_own(
    tmp_path: Path,
    checkpoint: Checkpoint,
    gallery: Gallery,
    target: Modality,
    form: dict[str, Any],
) -> None:
    shape = replace(
        checkpoint.model.config, has_two_towers=True, embedding_width=12, head_width=16, **form
    )
    save_checkpoint(tmp_path, JointModel(shape), checkpoint.tokenizer, {})
    towers = load_checkpoint(tmp_path)
    encoder = towers.model.joint_encoder
    assert isinstance(encoder, TwoTowers)
    read: list[int] = []
    encoder.text.tower.embedding_norm.register_forward_hook(
        lambda *passed: read.append(len(passed[2]))
    )

    offline = OfflineGallery(towers, gallery)
    embedded_count = sum(read)
    pools = offline.score(target, SCENE_COUNT)

    assert sum(read) == 2 * embedded_count <= 2 * SCENE_COUNT
    assert_pairs_are_the_models_own(pools, towers, gallery, target, cls_id=2)


def test_scores_of_a_published_encoder_are_its_own(tmp_path: Path, gallery: Gallery) -> None:
    """XLM-R's texts begin with 0 and are padded with 1; so does the text side of an image."""
    published_xlm_r(tmp_path / "published")
    published = PublishedCheckpoint.open(str(tmp_path / "published"))
    model = JointModel(published.config)
    published.start(model.joint_encoder)
    save_checkpoint(tmp_path / "ours", model, published.tokenizer, {})
    checkpoint = load_checkpoint(tmp_path / "ours")

    pools = OfflineGallery(checkpoint, gallery).score(Modality.TEXT, SCENE_COUNT)

    assert_pairs_are_the_models_own(pools, checkpoint, gallery, Modality.TEXT, cls_id=0)


def test_regions_take_the_place_of_pixels(tmp_path: Path, gallery: Gallery) -> None:
    """Of 1 to 5 regions an image: each pair as the model scores it without the padded rows."""
    rng = np.random.default_rng(0)
    regions = {
        record.record_id: rng.random((1 + number % 5, 2054)).astype(np.float16)
        for number, (record, _) in enumerate(gallery.pairs)
    }
    write_regions(tmp_path / "regions.safetensors", regions, region_count=5)
    tokenizer = tiny_tokenizer(tuple(caption.text for _, caption in gallery.pairs))
    model = JointModel(
        JointConfig(
            vocabulary_size=tokenizer.get_vocab_size(),
            width=16,
            layer_count=1,
            head_count=2,
            image_source="regions",
        )
    )
    save_checkpoint(tmp_path / "ours", model, tokenizer, {})
    checkpoint = load_checkpoint(tmp_path / "ours")

    offline = OfflineGallery(checkpoint, gallery, RegionFile(tmp_path / "regions.safetensors"))
    pools = offline.score(Modality.IMAGE, SCENE_COUNT)

    images = [torch.from_numpy(own)[None] for own in regions.values()]
    assert_pairs_are_the_models_own(
        pools, checkpoint, gallery, Modality.IMAGE, cls_id=2, images=images
    )


def test_image_tokens_that_the_model_does_not_read_are_refused(
    tmp_path: Path, checkpoint: Checkpoint, gallery: Gallery
) -> None:
    regions = {record.record_id: np.ones((1, 2054), np.float16) for record, _ in gallery.pairs}
    write_regions(tmp_path / "regions.safetensors", regions, region_count=1)

    with pytest.raises(ValueError, match="2054 wide and the checkpoint reads grid, 16 wide"):
        OfflineGallery(checkpoint, gallery, RegionFile(tmp_path / "regions.safetensors"))


def assert_pairs_are_the_models_own(
    pools: ScoredPools,
    checkpoint: Checkpoint,
    gallery: Gallery,
    target: Modality,
    cls_id: int,
    images: list[Tensor] | None = None,
) -> None:
    """Asserts that a few pairs, each alone and without padding, are scored alike."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    with torch.inference_mode():
        for query, item in [(0, 0), (0, 5), (7, 2), (11, 11)]:
            text, image = (query, item) if target is Modality.IMAGE else (item, query)
            ids = torch.tensor([tokenizer.encode(gallery.pairs[text][1].text).ids])
            mask = torch.ones_like(ids)
            if images is None:
                pixels = decode_image(gallery.pairs[image][0].image.read(), ImageRules(size=112))
                tokens = model.image_backbone(torch.from_numpy(pixels.copy())[None])
            else:
                tokens = images[image]
            cosine = model.embed_texts(ids, mask) @ model.embed_images(tokens, cls_id).T
            logit = model.match_logits(ids, mask, tokens)
            place = pools.retrieved[query].tolist().index(item)
            assert_allclose(pools.similarity[query, item], cosine.item(), atol=1e-5)
            # An image token is float16: among other pictures it may round to its neighbour.
            assert_allclose(pools.logits[query, place], logit.item(), rtol=1e-4, atol=1e-4)


def test_embeddings_give_the_similarities(offline: OfflineGallery) -> None:
    """Row by row of either modality, equal captions' too; they are of unit length."""
    images, texts = (offline.embeddings(each) for each in (Modality.IMAGE, Modality.TEXT))

    assert_allclose(images @ texts.T, offline.similarity(Modality.TEXT), atol=1e-6)
    assert_allclose(texts @ images.T, offline.similarity(Modality.IMAGE), atol=1e-6)
    assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)


def test_a_smaller_pool_is_the_start_of_a_larger(offline: OfflineGallery) -> None:
    large, small = offline.score(Modality.TEXT, 10), offline.score(Modality.TEXT, 4)

    assert (large.reranked(4) == small.reranked(4)).all()


@pytest.mark.parametrize("target", DIRECTIONS)
def test_a_pool_of_the_gallery_is_the_cross_encoder_on_all_pairs(
    offline: OfflineGallery, target: Modality
) -> None:
    pools = offline.score(target, SCENE_COUNT)
    grid = np.empty_like(pools.logits)
    np.put_along_axis(grid, pools.retrieved, pools.logits, axis=1)

    order = pools.reranked(SCENE_COUNT)

    assert (order == np.argsort(-grid, axis=1)).all()
    assert (order != pools.retrieved).any()  # or the model shows nothing


def test_recall_at_the_size_of_the_pool_is_the_bi_encoders(offline: OfflineGallery) -> None:
    k = 3
    pools = offline.score(Modality.IMAGE, k)
    of_be = recall_at(first_answer_ranks(pools.retrieved, ANSWERS), k)

    assert recall_at(first_answer_ranks(pools.reranked(k), ANSWERS), k) == of_be
    assert recall_at(first_answer_ranks(pools.fused(k, add, 0.5), ANSWERS), k) == of_be


@pytest.mark.parametrize("fuse", [add, norm_add])
def test_the_ends_of_fusion_are_retrieval_and_reranking(
    offline: OfflineGallery, fuse: Fusion
) -> None:
    """Weight 1 keeps the bi-encoder's order, 0 gives the cross-encoder's."""
    pools = offline.score(Modality.IMAGE, 6)

    assert (pools.fused(6, fuse, 1.0) == pools.retrieved).all()
    assert (pools.fused(6, fuse, 0.0) == pools.reranked(6)).all()


def test_another_checkpoint_can_retrieve(
    offline: OfflineGallery, gallery: Gallery, tmp_path: Path
) -> None:
    save_tiny_checkpoint(
        tmp_path, seed=9, texts=tuple(caption.text for _, caption in gallery.pairs)
    )
    other = OfflineGallery(load_checkpoint(tmp_path), gallery)
    its_own, theirs = (each.score(Modality.IMAGE, SCENE_COUNT) for each in (offline, other))

    both = offline.score(Modality.IMAGE, SCENE_COUNT, retriever=other)

    assert (both.retrieved == theirs.retrieved).all()
    assert (both.retrieved != its_own.retrieved).any()
    assert (both.similarity == theirs.similarity).all()
    of_query = dict(zip(its_own.retrieved[3].tolist(), its_own.logits[3].tolist(), strict=True))
    expected = [of_query[item] for item in both.retrieved[3].tolist()]
    assert_allclose(both.logits[3], expected, atol=1e-5)
