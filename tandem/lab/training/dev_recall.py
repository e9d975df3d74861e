"""Measures text-to-image recall on the dev split: BE over all images, CE over a pool.

Only a text's own image counts as right. Of the default's 500 scenes, 18 have a text that is true of
another scene too (seeds 1 and 2), so the best R@1 that can be expected is about 98.

Shapes: Q queries, N images, R image tokens, D width.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from tandem.lab.evaluation.metrics import recall_at
from tandem.lab.training.data.batches import ImageTextBatch
from tandem.lab.training.published.learner import PublishedLearner
from tandem.lab.training.recipes.recipe import Recipe
from tandem.modeling.joint_model import JointModel

Trained = JointModel | PublishedLearner

# Images that the CE reranks per text: the k of Geigle et al. 2022, section 6.
_POOL_K = 20
# Pictures whose pairs the CE scores for its mean recall: the paper's for Flickr30k.
_ALL_PAIRS_COUNT = 256


@dataclass(frozen=True, slots=True)
class DevRecall:
    """Holds percentages; None for a use that the recipe does not train."""

    be_r1: float | None
    be_r10: float | None
    ce_r1: float | None
    be_mean_recall: float | None = None
    """Mean of R@1, R@5 and R@10 in both directions, where the recipe picks by it."""
    ce_mean_recall: float | None = None
    """The same of the CE, over all pairs of the first pictures."""

    @property
    def score(self) -> float:
        """The mean over the trained uses, by which the best checkpoint is picked."""
        means = [mean for mean in (self.be_mean_recall, self.ce_mean_recall) if mean is not None]
        if means:
            return sum(means) / len(means)
        uses = []
        if self.be_r1 is not None and self.be_r10 is not None:
            uses.append((self.be_r1 + self.be_r10) / 2)
        if self.ce_r1 is not None:
            uses.append(self.ce_r1)
        return sum(uses) / len(uses)

    def to_dict(self) -> dict[str, float | None]:
        """Returns the percentages by name, the mean recalls only where they were measured."""
        return {
            name: percent
            for name, percent in asdict(self).items()
            if percent is not None or not name.endswith("mean_recall")
        }

    def __str__(self) -> str:
        shown = {
            "BE R@1": self.be_r1,
            "BE R@10": self.be_r10,
            "CE R@1": self.ce_r1,
            "BE mean recall": self.be_mean_recall,
            "CE mean recall": self.ce_mean_recall,
        }
        return ", ".join(
            f"{name} {value:.1f}" for name, value in shown.items() if value is not None
        )


def dev_recall(
    model: Trained,
    dev: ImageTextBatch,
    cls_id: int,
    recipe: Recipe,
    query_count: int | None = None,
    on_query: Callable[[int], None] = lambda _: None,
    *,
    scores_pairs: bool | None = None,
) -> DevRecall:
    """Returns the recalls of the uses that the recipe trains.

    Asks all texts, or the first `query_count`, and searches every picture. `on_query` receives the
    number of texts that the CE has reranked. `scores_pairs` says whether there is a CE to measure.
    """
    scores_pairs = recipe.trains_ce if scores_pairs is None else scores_pairs
    query_count = min(query_count or len(dev.tokens), len(dev.tokens))
    similarity_QN = similarity(model, dev, cls_id) if recipe.trains_be else None
    retrieved_QN = None if similarity_QN is None else _order(similarity_QN)[:query_count]
    be_ranks = [] if retrieved_QN is None else _ranks(retrieved_QN)
    ce_ranks = []
    if scores_pairs:
        if isinstance(model, PublishedLearner):
            dev = replace(dev, tokens=model.pair_tokens(dev.tokens))
        every_N = torch.arange(len(dev.tokens), device=dev.tokens.device)
        every_QN = every_N.expand(query_count, -1)
        pool_QK = every_QN if retrieved_QN is None else retrieved_QN[:, :_POOL_K]
        ce_ranks = _ranks(_rerank(model, dev, pool_QK, on_query))
    be_mean, ce_mean = None, None
    if recipe.dev_score == "mean_recall" and query_count == len(dev.tokens):
        be_mean = None if similarity_QN is None else mean_recall(similarity_QN)
        ce_mean = mean_recall(_all_logits(model, dev)) if scores_pairs else None
    return DevRecall(
        be_r1=recall_at(be_ranks, 1).percent if be_ranks else None,
        be_r10=recall_at(be_ranks, 10).percent if be_ranks else None,
        ce_r1=recall_at(ce_ranks, 1).percent if ce_ranks else None,
        be_mean_recall=be_mean,
        ce_mean_recall=ce_mean,
    )


def mean_recall(scores_QN: Tensor) -> float:
    """Returns the mean of R@1, R@5 and R@10 in both directions, in percent.

    >>> mean_recall(torch.eye(3))
    100.0
    """
    both = (_ranks(_order(scores_QN)), _ranks(_order(scores_QN.T)))
    percents = [recall_at(ranks, k).percent for ranks in both for k in (1, 5, 10)]
    return sum(percents) / len(percents)


@torch.inference_mode()
def similarity(model: Trained, dev: ImageTextBatch, cls_id: int) -> Tensor:
    chunks = zip(dev.tokens.split(128), dev.image_mask.split(128), strict=True)
    images_ND = torch.cat([model.embed_images(tokens, cls_id, mask) for tokens, mask in chunks])
    texts_QD = model.embed_texts(dev.texts.ids, dev.texts.mask)
    # In bf16 neighbours would tie, and ties would decide which checkpoint is the best.
    with torch.autocast(texts_QD.device.type, enabled=False):
        similarity_QN: Tensor = texts_QD.float() @ images_ND.float().T
    return similarity_QN


def _order(scores_QN: Tensor) -> Tensor:
    return scores_QN.argsort(dim=1, descending=True, stable=True)


@torch.inference_mode()
def _all_logits(model: Trained, dev: ImageTextBatch) -> Tensor:
    count = min(_ALL_PAIRS_COUNT, len(dev.tokens))
    rows = []
    for query in range(count):
        ids, mask = (each[query].expand(count, -1) for each in (dev.texts.ids, dev.texts.mask))
        rows.append(model.match_logits(ids, mask, dev.tokens[:count], dev.image_mask[:count]))
    return torch.stack(rows)


@torch.inference_mode()
def _rerank(
    model: Trained, dev: ImageTextBatch, pool_QK: Tensor, on_query: Callable[[int], None]
) -> Tensor:
    rows = []
    for query, pool_K in enumerate(pool_QK):
        ids = dev.texts.ids[query].expand(len(pool_K), -1)
        mask = dev.texts.mask[query].expand(len(pool_K), -1)
        logits_K = model.match_logits(ids, mask, dev.tokens[pool_K], dev.image_mask[pool_K])
        rows.append(pool_K[logits_K.argsort(descending=True, stable=True)])
        on_query(query + 1)
    return torch.stack(rows)


def _ranks(order_QK: Tensor) -> list[int | None]:
    orders = enumerate(order_QK.tolist())
    return [order.index(query) + 1 if query in order else None for query, order in orders]
