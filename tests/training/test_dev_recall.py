"""Dev recall: the ranks are those that plain sorting gives."""

import pytest
import torch

from tandem.modeling.joint_model import JointModel
from tandem.training.dev_recall import DevRecall, dev_recall
from tandem.training.scene_batches import TextBatch
from tests.modeling.tiny_checkpoint import tiny_model

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


@pytest.mark.parametrize("count", [30, 12])
def test_recalls_are_those_of_plain_sorting(count: int) -> None:
    """With more images than are reranked, and with fewer."""
    model = tiny_model()
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(4, 60, (count, 6), generator=generator)
    texts = TextBatch(ids, torch.ones_like(ids))
    tokens = torch.randn(count, 49, 16, generator=generator).half()

    recall = dev_recall(model, texts, tokens, CLS_ID)

    be_ranks, ce_ranks = ranks(model, texts, tokens)
    assert recall.be_r1 == pytest.approx(100 * sum(rank <= 1 for rank in be_ranks) / count)
    assert recall.be_r10 == pytest.approx(100 * sum(rank <= 10 for rank in be_ranks) / count)
    assert recall.ce_r1 == pytest.approx(100 * sum(rank <= 1 for rank in ce_ranks) / count)
    assert recall.be_r10 > recall.be_r1  # or the seed shows nothing


def test_the_score_weighs_both_ways_of_use_alike() -> None:
    """The BE's two recalls share a half, the CE's has the other: (40 + 80) / 4 + 90 / 2."""
    assert DevRecall(be_r1=40.0, be_r10=80.0, ce_r1=90.0).score == pytest.approx(75.0)
