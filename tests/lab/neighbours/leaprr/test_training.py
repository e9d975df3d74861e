"""Training and orders on a corpus whose neighbours say what its similarities do not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from tandem.lab.evaluation.ranking import retrieve_order
from tandem.lab.neighbours.leaprr.config import LeaprrConfig, Profile, leaprr_config
from tandem.lab.neighbours.leaprr.losses import batch_loss
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    RefinedOrders,
    refine,
    refined_scores,
)
from tandem.lab.neighbours.leaprr.training import LeaprrDiverged, LeaprrRun, dev_recall_sum
from tandem.lab.neighbours.lists.corpus_neighbours import with_pools
from tandem.lab.neighbours.lists.neighbour_lists import SimilarityLists
from tests.support.neighbours.planted_corpus import planted_neighbours
from tests.support.neighbours.similarity_views import similarity_view

each_profile = pytest.mark.parametrize("profile", ["paper", "code"])


def _corpus(seed: int, image_count: int = 40) -> SimilarityLists:
    """Returns images with two texts each, of which those alike are so within their modality.

    Across modalities there is much noise, and each modality has a scale of its own, so that a
    network has to learn to compare pillars of two of them.
    """
    rng = np.random.default_rng(seed)
    concepts = rng.normal(size=(image_count, 16))
    image_of_text = np.repeat(np.arange(image_count), 2)
    images, texts = (
        near / np.linalg.norm(near, axis=1, keepdims=True)
        for near in (
            each + 0.5 * rng.normal(size=each.shape) for each in (concepts, concepts[image_of_text])
        )
    )
    cross = images @ texts.T
    cross += 0.24 * rng.normal(size=cross.shape)
    return similarity_view(
        cross, 0.8 + 0.2 * images @ images.T, 0.3 * texts @ texts.T - 0.3, image_of_text
    )


def _reranked_corpus(seed: int) -> SimilarityLists:
    """Returns a corpus over a cross-encoder whose logits, all far above 0, favour answers."""
    near = planted_neighbours(seed, image_count=60, depth=32)
    rng = np.random.default_rng(seed)
    is_answer_IT = np.arange(60)[:, None] == near.image_of_text
    logits_IT = 20 + 3 * is_answer_IT + rng.normal(size=is_answer_IT.shape)
    image_logits, text_logits = (
        np.take_along_axis(logits, near.lists[name][:, :10], axis=1)
        for logits, name in [(logits_IT, "texts_of_image"), (logits_IT.T, "images_of_text")]
    )
    return with_pools(near, {}, image_logits, text_logits).similarity_lists()


def _config(profile: Profile) -> LeaprrConfig:
    config = replace(
        leaprr_config(profile),
        pillar_count=16,
        image_query_neighbours=12,
        text_query_neighbours=8,
        fixed_threshold_nodes=None,
        batch_size=40,
    )
    return replace(config, width=32, head_count=4) if profile == "code" else config


def _trained(
    lists: SimilarityLists,
    config: LeaprrConfig,
    epoch_count: int = 1,
    seed: int = 0,
    dev: SimilarityLists | None = None,
) -> LeaprrRun:
    run = LeaprrRun(lists, config, epoch_count=epoch_count, seed=seed, dev=dev or lists)
    while not run.is_over:
        run.run_epoch()
    return run


def _base(lists: SimilarityLists) -> RefinedOrders:
    return RefinedOrders(retrieve_order(lists.cross), retrieve_order(lists.cross.T))


def _first_hits(orders: RefinedOrders, lists: SimilarityLists) -> int:
    texts_first = lists.item_images[orders.texts_of_image[:, 0]] == lists.query_images
    images_first = orders.images_of_text[:, 0] == lists.item_images
    return int(texts_first.sum() + images_first.sum())


# By the paper's profile the tests of single fields train.
@pytest.mark.parametrize(
    ("profile", "rate"), [pytest.param("paper", 0.2, marks=pytest.mark.slow), ("code", 0.02)]
)
def test_it_learns_from_planted_neighbours(profile: Profile, rate: float) -> None:
    """The loss falls, and on another corpus more queries find their answer first."""
    config = replace(_config(profile), learning_rate=rate)
    test = _corpus(seed=3)

    result = _trained(_corpus(seed=1), config, epoch_count=12, dev=_corpus(seed=2))

    assert np.mean(result.losses[-4:]) < 0.95 * np.mean(result.losses[:4])
    orders = refine(result.best, test)
    untrained = refine(LeaprrModel.untrained(config, seed=0), test)
    assert _first_hits(untrained, test) < _first_hits(orders, test)
    assert _first_hits(orders, test) > _first_hits(_base(test), test) + 3
    assert dev_recall_sum(orders, test) > dev_recall_sum(_base(test), test) + 5


def test_it_learns_over_a_cross_encoder_of_any_logits() -> None:
    """Items after a graph keep their similarity, which must not outrank the networks' scores.

    Similarities with sigmoids of these logits did: every one was above 1, and the orders chance.
    """
    config = replace(
        _config("code"), image_query_neighbours=5, text_query_neighbours=5, learning_rate=0.5
    )
    test = _reranked_corpus(seed=3)

    result = _trained(_reranked_corpus(seed=1), config, 8, seed=1, dev=_reranked_corpus(seed=2))

    base = _base(test)
    orders = refine(result.best, test)
    assert dev_recall_sum(base, test) > 450
    assert dev_recall_sum(orders, test) > dev_recall_sum(base, test) - 20


def test_the_weights_of_losses_add_up() -> None:
    """Without either loss the alignment is left, and each weighs what it adds."""
    lists, config = _corpus(seed=1), _config("paper")
    losses = {}
    for contrastive, triplet in [(0, 0), (1, 0), (0, 1), (2, 3)]:
        weighted = replace(config, contrastive_weight=contrastive, triplet_weight=triplet)
        model = LeaprrModel.untrained(weighted, seed=0)
        texts, rng = np.arange(6), np.random.default_rng(0)
        losses[contrastive, triplet] = batch_loss(model, lists, texts, rng).item()

    alone = losses[0, 0]
    of_contrastive, of_triplet = losses[1, 0] - alone, losses[0, 1] - alone

    assert min(alone, of_contrastive, of_triplet) > 0
    assert losses[2, 3] == pytest.approx(alone + 2 * of_contrastive + 3 * of_triplet, rel=1e-5)


def test_mapped_graphs_have_no_triplet_loss() -> None:
    """They add the contrastive loss and the hinge, as in the published program, and no more."""
    lists, config = _corpus(seed=1), _config("code")

    def loss(weight: float, *, trains_mapped_graphs: bool) -> float:
        weighted = replace(config, triplet_weight=weight, trains_mapped_graphs=trains_mapped_graphs)
        model = LeaprrModel.untrained(weighted, seed=0)
        return batch_loss(model, lists, np.arange(6), np.random.default_rng(0)).item()

    added = [
        loss(weight, trains_mapped_graphs=True) - loss(weight, trains_mapped_graphs=False)
        for weight in (0.0, 1.0)
    ]

    assert added[0] > 0
    assert added[1] == pytest.approx(added[0], rel=1e-4)
    assert loss(1.0, trains_mapped_graphs=False) > loss(0.0, trains_mapped_graphs=False)


def test_lists_shorter_than_graphs_or_pillars_are_named_before_training() -> None:
    """Those of dev too, which are read after an epoch."""
    lists, config = _corpus(seed=1), _config("paper")

    for train, dev, whose, needed in [
        (lists.cut(15), lists, "to learn from have 15", 16),
        (lists, lists.cut(15), "of dev have 15", 16),
    ]:
        with pytest.raises(ValueError, match=f"the lists {whose} neighbours.* need {needed}"):
            LeaprrRun(train, config, epoch_count=1, seed=0, dev=dev)
    wide = replace(config, image_query_neighbours=17)
    with pytest.raises(ValueError, match=r"to learn from have 16 neighbours.* need 17"):
        LeaprrRun(lists.cut(16), wide, epoch_count=1, seed=0, dev=lists)


def test_the_best_epoch_on_dev_is_kept() -> None:
    dev = _corpus(seed=2)

    result = _trained(_corpus(seed=1), _config("paper"), epoch_count=3, dev=dev)

    assert len(result.dev_recall_sums) == 3
    assert dev_recall_sum(refine(result.best, dev), dev) == max(result.dev_recall_sums)


def test_a_seed_gives_the_same_run_and_another_does_not() -> None:
    lists, config = _corpus(seed=1), _config("paper")

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)

    runs = [_trained(lists, config, seed=seed).losses for seed in (0, 0, 1)]

    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert torch.rand(1) == expected, "torch's own generator was used"


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    config = replace(_config("paper"), learning_rate=1e30)

    with pytest.raises(LeaprrDiverged):
        _trained(_corpus(seed=1), config, epoch_count=5)


def test_each_loss_that_a_profile_has_changes_the_run() -> None:
    """Otherwise a field could be without effect."""
    lists = _corpus(seed=1)
    base = _trained(lists, _config("paper"), epoch_count=2).losses
    changes: list[dict[str, object]] = [
        {"contrastive_temperature": 2.0},
        {"scores_query": True},
        {"has_raw_hinge": True},
        {"trains_mapped_graphs": True},
        {"decays_learning_rate": True},
        {"reconstructs": True, "reconstruction_weight": 1.0},
        {"fixed_threshold_nodes": (100, 100)},
        {"includes_query_pillar": False},
        {"normalises_pillars": True},
        {"pillar_rank": "bottom"},
        {"pillar_rank": "random"},
        {"pillar_modality": "inter"},
        {"pillar_modality": "intra"},
        {"alignment_weight": 0.0},
    ]

    for change in changes:
        config = replace(_config("paper"), **change)  # type: ignore[arg-type]
        assert _trained(lists, config, epoch_count=2).losses != base, change


def test_the_paper_reorders_only_neighbours() -> None:
    lists = _corpus(seed=1)

    orders = refine(LeaprrModel.untrained(_config("paper"), seed=0), lists)

    base = _base(lists)
    assert_array_equal(orders.texts_of_image[:, 12:], base.texts_of_image[:, 12:])
    assert_array_equal(orders.images_of_text[:, 8:], base.images_of_text[:, 8:])
    assert (orders.texts_of_image[:, :12] != base.texts_of_image[:, :12]).any()


def test_the_code_averages_both_directions_over_all_pairs() -> None:
    """Pair by pair; an item outside of both pools keeps its raw similarity."""
    lists = _corpus(seed=1)
    model = LeaprrModel.untrained(_config("code"), seed=0)
    texts, text_scores = refined_scores(model, lists, is_text_query=False)
    images, image_scores = refined_scores(model, lists.reversed(), is_text_query=True)
    expected = 2 * lists.cross
    for image, row in enumerate(texts):
        for place, text in enumerate(row):
            expected[image, text] += text_scores[image, place] - lists.cross[image, text]
    for text, row in enumerate(images):
        for place, image in enumerate(row):
            expected[image, text] += image_scores[text, place] - lists.cross[image, text]

    orders = refine(model, lists)

    in_order = np.take_along_axis(expected, orders.texts_of_image, axis=1)
    assert (np.diff(in_order) <= 1e-9).all()
    in_order = np.take_along_axis(expected.T, orders.images_of_text, axis=1)
    assert (np.diff(in_order) <= 1e-9).all()
    assert (orders.texts_of_image != retrieve_order(lists.cross)).any()


@each_profile
def test_one_network_alone_leaves_the_other_directions_similarities(profile: Profile) -> None:
    """With both, each changes what the other orders in the code, and nothing in the paper."""
    lists, base = _corpus(seed=1), _base(_corpus(seed=1))
    model = LeaprrModel.untrained(_config(profile), seed=0)

    by_images = refine(model, lists, "image_queries")
    by_texts = refine(model, lists, "text_queries")

    both = refine(model, lists)
    assert (by_images.texts_of_image != base.texts_of_image).any()
    assert (by_texts.images_of_text != base.images_of_text).any()
    if profile == "paper":
        assert_array_equal(by_images.images_of_text, base.images_of_text)
        assert_array_equal(by_texts.texts_of_image, base.texts_of_image)
        assert_array_equal(by_images.texts_of_image, both.texts_of_image)
        assert_array_equal(by_texts.images_of_text, both.images_of_text)
    else:
        assert (by_images.images_of_text != base.images_of_text).any()
        assert (by_texts.texts_of_image != base.texts_of_image).any()
        assert (by_images.texts_of_image != both.texts_of_image).any()


def test_a_corpus_of_fewer_items_than_neighbours_is_ordered() -> None:
    """Each direction's graph then has all items."""
    config = replace(_config("paper"), pillar_count=4, affinity_neighbours=4)
    lists = _corpus(seed=1, image_count=5)

    orders = refine(LeaprrModel.untrained(config, seed=0), lists)

    assert_array_equal(np.sort(orders.texts_of_image, axis=1), [list(range(10))] * 5)
    assert_array_equal(np.sort(orders.images_of_text, axis=1), [list(range(5))] * 10)
