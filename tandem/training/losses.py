"""The objectives of the joint model (Geigle et al. 2022, 3.2 and 3.1).

Shapes: B batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_hard_triplet_loss(
    texts_BD: Tensor, images_BD: Tensor, groups_B: Tensor, margin: float
) -> Tensor:
    """Returns the bidirectional triplet loss with the hardest negative of the batch, a scalar.

    texts_BD, images_BD: unit-length embeddings, row j of both is one pair. groups_B: int64; rows of
    one group are never negatives of each other, as where one's text describes the other's image.
    Distance is 1 - cosine. Mean over the batch, not the sum of the VSE++ line; the hardest
    negative, not the mean of all.

    >>> eye = torch.eye(2)
    >>> batch_hard_triplet_loss(eye, eye, torch.tensor([0, 1]), margin=0.1).item()
    0.0
    """
    distance_BB = 1.0 - texts_BD @ images_BD.T
    same_BB = groups_B[:, None] == groups_B[None, :]
    # Distances end at 2, so 2 more puts a positive behind every negative.
    masked_BB = distance_BB + 2.0 * same_BB
    positive_B = distance_BB.diagonal()
    hardest_text_B = masked_BB.min(dim=0).values
    hardest_image_B = masked_BB.min(dim=1).values
    hinge_B = F.relu(positive_B - hardest_text_B + margin) + F.relu(
        positive_B - hardest_image_B + margin
    )
    return hinge_B.mean()


def sampled_triplet_loss(texts_BSD: Tensor, images_BSD: Tensor, margin: float) -> Tensor:
    """Returns the bidirectional triplet loss with every sampled negative, a scalar.

    texts_BSD, images_BSD: unit-length embeddings; of each pair its own text and image stand first
    of S, and its negatives after them. Distance is 1 - cosine. Mean over all 2 B (S - 1) hinges,
    not the hardest (Geigle et al., arXiv v1, appendix A.3).
    """
    text_BD, image_BD = texts_BSD[:, 0], images_BSD[:, 0]
    positive_B1 = 1.0 - (text_BD * image_BD).sum(-1, keepdim=True)
    to_wrong_images_BK = 1.0 - torch.einsum("bd,bkd->bk", text_BD, images_BSD[:, 1:])
    to_wrong_texts_BK = 1.0 - torch.einsum("bd,bkd->bk", image_BD, texts_BSD[:, 1:])
    wrong_B2K = torch.cat([to_wrong_images_BK, to_wrong_texts_BK], dim=1)
    return F.relu(positive_B1 - wrong_B2K + margin).mean()


def in_batch_softmax_loss(texts_BD: Tensor, images_BD: Tensor, temperature: float) -> Tensor:
    """Returns the symmetric cross-entropy of each pair against all others of the batch, a scalar.

    What comes before batch_hard_triplet_loss when nothing is pretrained: at random weights all
    distances are nearly equal, the hardest negative pulls everything into one point, and the
    triplet loss rests at twice the margin for good. Every row is a negative of every other, so that
    none should say what another shows (PairPool.match_batch says how often one does).
    """
    logits_BB = texts_BD @ images_BD.T / temperature
    target_B = torch.arange(len(logits_BB), device=logits_BB.device)
    return (F.cross_entropy(logits_BB, target_B) + F.cross_entropy(logits_BB.T, target_B)) / 2


def pair_classification_loss(match_logits_B: Tensor, matches_B: Tensor) -> Tensor:
    """Returns the cross-entropy of match against no match, a scalar.

    match_logits_B: z1 - z0 of the two-class head, so that this binary form equals the two-class
    softmax. matches_B: 1 where the pair belongs together, else 0.
    """
    return F.binary_cross_entropy_with_logits(match_logits_B, matches_B.to(match_logits_B.dtype))


def masked_word_loss(word_logits_MV: Tensor, words_M: Tensor, masked_count: float) -> Tensor:
    """Returns the cross-entropy of masked words, a scalar: their sum over `masked_count`.

    That is M, or where several processes have each a part of the batch, the mean of their M.
    """
    return F.cross_entropy(word_logits_MV.float(), words_M, reduction="sum") / masked_count


def labelling_loss(class_logits_BRC: Tensor, classes_BR: Tensor) -> Tensor:
    """Returns the cross-entropy of each image token's drawing, a scalar.

    Class 0 is "no drawing's centre lies here", which most tokens are; it is weighed down so that
    the drawings count for about as much.
    """
    weight_C = torch.ones(class_logits_BRC.shape[-1], device=class_logits_BRC.device)
    weight_C[0] = 0.2
    return F.cross_entropy(class_logits_BRC.flatten(0, 1).float(), classes_BR.flatten(), weight_C)
