"""Recall on dev scenes while training: text to image, BE over all, CE over the BE's best.

Shapes: Q queries, N images, R image tokens, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.evaluation.metrics import recall_at
from tandem.modeling.joint_model import JointModel
from tandem.training.scene_batches import TextBatch

_RERANK_K = 20


@dataclass(frozen=True, slots=True)
class DevRecall:
    """Percentages."""

    be_r1: float
    be_r10: float
    ce_r1: float

    @property
    def score(self) -> float:
        """What picks the best checkpoint: the mean over the two ways of use."""
        return (self.be_r1 + self.be_r10 + 2 * self.ce_r1) / 4


@torch.inference_mode()
def dev_recall(model: JointModel, texts: TextBatch, tokens_NRD: Tensor, cls_id: int) -> DevRecall:
    """Returns recalls for texts and images that match row by row."""
    images_ND = torch.cat([model.embed_images(chunk, cls_id) for chunk in tokens_NRD.split(128)])
    texts_QD = model.embed_texts(texts.ids, texts.mask)
    nearest_QK = (texts_QD @ images_ND.T).topk(min(_RERANK_K, len(images_ND))).indices
    be_ranks, ce_ranks = [], []
    for query, nearest_K in enumerate(nearest_QK):
        ids = texts.ids[query].expand(len(nearest_K), -1)
        mask = texts.mask[query].expand(len(nearest_K), -1)
        logits_K = model.match_logits(ids, mask, tokens_NRD[nearest_K])
        be_ranks.append(_rank_of(query, nearest_K.tolist()))
        ce_ranks.append(_rank_of(query, nearest_K[logits_K.argsort(descending=True)].tolist()))
    return DevRecall(
        recall_at(be_ranks, 1).percent,
        recall_at(be_ranks, 10).percent,
        recall_at(ce_ranks, 1).percent,
    )


def _rank_of(wanted: int, order: Sequence[int]) -> int | None:
    return order.index(wanted) + 1 if wanted in order else None
