"""Dev recall: the ranks are those that plain sorting gives."""

from dataclasses import replace

import pytest
import torch

from tandem.lab.training.data.batches import ImageTextBatch, TextBatch
from tandem.lab.training.dev_recall import (
    DevRecall,
    _order,
    _rerank,
    dev_recall,
    mean_recall,
    similarity,
)
from tandem.lab.training.first_recall import FirstRecall
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_model

CLS_ID = 2


@torch.inference_mode()
def ranks(model: JointModel, texts: TextBatch, tokens: torch.Tensor) -> tuple[list[int], list[int]]:
    """Returns each answer's rank by BE over all, and by CE over the BE's first 20, one by one."""
    count = len(tokens)
    images = torch.cat([model.embed_images(tokens[n : n + 1], CLS_ID) for n in range(count)])
    be_ranks, ce_ranks = [], []
    for q in range(count):
        ids, mask = texts.ids[q : q + 1], texts.mask[q : q + 1]
        cosines = (model.embed_texts(ids, mask) @ images.T)[0].tolist()
        order = sorted(range(count), key=lambda n: -cosines[n])
        be_ranks.append(order.index(q) + 1)
        all_logits = model.match_logits(ids.expand(count, -1), mask.expand(count, -1), tokens)
        logits = {n: all_logits[n].item() for n in order[:20]}
        reranked = sorted(logits, key=lambda n: -logits[n])
        ce_ranks.append(reranked.index(q) + 1 if q in logits else 1000)
    return be_ranks, ce_ranks


def every_counts(tokens: torch.Tensor) -> torch.Tensor:
    return torch.ones(tokens.shape[:2], dtype=torch.int64)


def dev_set(texts: TextBatch, tokens: torch.Tensor) -> ImageTextBatch:
    """Returns images all of whose tokens count."""
    return ImageTextBatch(texts, tokens, every_counts(tokens))


def test_recalls_are_those_of_plain_sorting() -> None:
    count = 30
    model, texts, tokens = tiny_dev_set(count)

    recall = dev_recall(model, dev_set(texts, tokens), CLS_ID, tiny())

    be_ranks, ce_ranks = ranks(model, texts, tokens)
    assert recall.be_r1 == pytest.approx(100 * sum(rank <= 1 for rank in be_ranks) / count)
    assert recall.be_r10 == pytest.approx(100 * sum(rank <= 10 for rank in be_ranks) / count)
    assert recall.ce_r1 == pytest.approx(100 * sum(rank <= 1 for rank in ce_ranks) / count)
    assert be_ranks != ce_ranks  # or the seed shows nothing


def test_a_sample_of_the_texts_searches_every_image() -> None:
    model, texts, tokens = tiny_dev_set(30)
    dev = dev_set(texts, tokens)
    done: list[int] = []

    sample = dev_recall(model, dev, CLS_ID, tiny(), 7, done.append)

    be_ranks, ce_ranks = ranks(model, texts, tokens)
    assert sample.be_r10 == pytest.approx(100 * sum(rank <= 10 for rank in be_ranks[:7]) / 7)
    assert sample.ce_r1 == pytest.approx(100 * sum(rank <= 1 for rank in ce_ranks[:7]) / 7)
    assert done == [1, 2, 3, 4, 5, 6, 7]
    assert str(FirstRecall(sample, 7, 30)).endswith("(of the first 7 of 30 texts)")
    assert str(FirstRecall(sample, 30, 30)) == str(sample)


def test_a_recipe_is_scored_by_what_it_trains() -> None:
    """The BE alone has no CE recall; the CE alone reorders every image for every text."""
    model, texts, tokens = tiny_dev_set(25)

    dev = dev_set(texts, tokens)
    be_alone = dev_recall(model, dev, CLS_ID, replace(tiny(), ce_steps_per_round=0))
    ce_alone = dev_recall(model, dev, CLS_ID, replace(tiny(), be_steps_per_round=0))

    assert be_alone.ce_r1 is None
    assert be_alone.be_r1 is not None
    assert be_alone.be_r10 is not None
    assert be_alone.score == pytest.approx((be_alone.be_r1 + be_alone.be_r10) / 2)
    assert (ce_alone.be_r1, ce_alone.be_r10) == (None, None)
    grid = torch.stack(
        [
            model.match_logits(texts.ids[q].expand(25, -1), texts.mask[q].expand(25, -1), tokens)
            for q in range(25)
        ]
    )
    best = (grid.argmax(dim=1) == torch.arange(25)).float().mean().item()
    assert ce_alone.ce_r1 == pytest.approx(100 * best)
    assert ce_alone.score == ce_alone.ce_r1


def test_mean_recall_is_of_three_cut_offs_and_both_directions() -> None:
    """Worked by hand: the second text finds its picture third, and all else is first."""
    scores = torch.tensor([[9.0, 0.0, 0.0], [7.0, 6.0, 8.0], [0.0, 0.0, 9.0]])

    assert mean_recall(scores) == pytest.approx((200 / 3 + 100 + 100 + 100 + 100 + 100) / 6)


def test_the_papers_score_is_the_mean_recall_of_both_stages() -> None:
    model, texts, tokens = tiny_dev_set(12)
    dev = dev_set(texts, tokens)

    by_both = dev_recall(model, dev, CLS_ID, replace(tiny(), dev_score="mean_recall"))
    plain = dev_recall(model, dev, CLS_ID, tiny())

    grid = torch.stack(
        [
            model.match_logits(texts.ids[q].expand(12, -1), texts.mask[q].expand(12, -1), tokens)
            for q in range(12)
        ]
    )
    assert by_both.ce_mean_recall == pytest.approx(mean_recall(grid.detach()))
    assert by_both.be_mean_recall is not None
    assert by_both.score == (by_both.be_mean_recall + by_both.ce_mean_recall) / 2
    assert (plain.be_mean_recall, plain.ce_mean_recall) == (None, None)
    assert set(plain.to_dict()) == {"be_r1", "be_r10", "ce_r1"}
    assert "CE mean recall" in str(by_both)


def tiny_dev_set(count: int) -> tuple[JointModel, TextBatch, torch.Tensor]:
    """Returns an untrained model and as many random texts and images."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(4, 60, (count, 6), generator=generator)
    texts = TextBatch(ids, torch.ones_like(ids))
    return tiny_model(), texts, torch.randn(count, 49, 16, generator=generator).half()


def test_similarities_are_distinguished_under_autocast() -> None:
    """In bf16, as the model multiplies in training, near ones would tie."""
    model, texts, tokens = tiny_dev_set(60)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        order = _order(similarity(model, dev_set(texts, tokens), 2))
        embeddings = model.embed_texts(texts.ids, texts.mask), model.embed_images(tokens, 2)
        rounded = embeddings[0] @ embeddings[1].T
    exact = embeddings[0].float() @ embeddings[1].float().T

    assert rounded.dtype is torch.bfloat16
    assert torch.equal(order, exact.argsort(dim=1, descending=True, stable=True))
    assert not torch.equal(order, rounded.argsort(dim=1, descending=True, stable=True))


def test_tokens_that_do_not_count_have_no_part() -> None:
    model, texts, tokens = tiny_dev_set(30)
    other, mask = tokens.clone(), every_counts(tokens)
    other[:, 40:] *= -3
    mask[:, 40:] = 0

    def orders(dev: ImageTextBatch) -> tuple[torch.Tensor, torch.Tensor]:
        retrieved_QN = _order(similarity(model, dev, CLS_ID))
        return retrieved_QN, _rerank(model, dev, retrieved_QN[:, :20], lambda _: None)

    masked = [orders(ImageTextBatch(texts, each, mask)) for each in (tokens, other)]
    counted = [orders(dev_set(texts, each)) for each in (tokens, other)]

    assert all(map(torch.equal, *masked))
    assert not any(map(torch.equal, *counted))


def test_the_score_weighs_both_uses_equally() -> None:
    """The BE's two recalls share a half, the CE's has the other: (40 + 80) / 4 + 90 / 2."""
    assert DevRecall(be_r1=40.0, be_r10=80.0, ce_r1=90.0).score == pytest.approx(75.0)
