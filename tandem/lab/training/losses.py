"""Defines the loss functions, each a pure function of embeddings or logits to a scalar.

Geigle et al. 2022 train the BE with a triplet loss (section 3.2) and the CE by classifying pairs
(section 3.1). Shapes: B rows, D width, S = 1 + K a pair's own and its K negatives, C classes, M
masked words, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_hard_triplet_loss(
    texts_BD: Tensor, images_BD: Tensor, groups_B: Tensor, margin: float
) -> Tensor:
    """Returns the bidirectional triplet loss with the hardest negative of the batch.

        mean_j [ max(0, m + d(t_j, i_j) - min_k d(t_j, i_k))
               + max(0, m + d(t_j, i_j) - min_k d(t_k, i_j)) ]

    with distance d = 1 - cosine, margin m, and k over rows of other groups (Geigle et al. 2022,
    equation 2).

    texts_BD, images_BD: unit-length embeddings; row j of both is one pair. groups_B: int64; rows of
    one group are never negatives of each other, because one's text may describe the other's image.

    Relation to the max-of-hinges loss of VSE++ (Faghri et al. 2018): VSE++ *sums* the hinges over
    the batch and excludes only the pair itself. This is the *mean*, so the gradient does not grow
    with the batch size, and a whole group is excluded. Batch-hard triplet loss as in person
    re-identification mines a negative in one modality; here each direction has its own.

    >>> eye = torch.eye(2)
    >>> batch_hard_triplet_loss(eye, eye, torch.tensor([0, 1]), margin=0.1).item()
    0.0
    """
    distance_BB = 1.0 - texts_BD @ images_BD.T
    same_BB = groups_B[:, None] == groups_B[None, :]
    # A distance is at most 2, so adding 2 ranks a positive after every negative.
    masked_BB = distance_BB + 2.0 * same_BB
    positive_B = distance_BB.diagonal()
    hardest_text_B = masked_BB.min(dim=0).values
    hardest_image_B = masked_BB.min(dim=1).values
    hinge_B = F.relu(positive_B - hardest_text_B + margin) + F.relu(
        positive_B - hardest_image_B + margin
    )
    return hinge_B.mean()


def sampled_triplet_loss(texts_BSD: Tensor, images_BSD: Tensor, margin: float) -> Tensor:
    """Returns the bidirectional triplet loss over sampled negatives.

        mean_jk [ max(0, m + d(t_j, i_j) - d(t_j, i_jk)), max(0, m + d(t_j, i_j) - d(t_jk, i_j)) ]

    with distance d = 1 - cosine and margin m (Geigle et al., arXiv v1, appendix A.3). Unlike
    batch_hard_triplet_loss it averages all 2 B K hinges and does not pick the hardest.

    texts_BSD, images_BSD: unit-length embeddings; index 0 of S is the pair's own, the K others are
    its negatives.
    """
    text_BD, image_BD = texts_BSD[:, 0], images_BSD[:, 0]
    positive_B1 = 1.0 - (text_BD * image_BD).sum(-1, keepdim=True)
    to_wrong_images_BK = 1.0 - torch.einsum("bd,bkd->bk", text_BD, images_BSD[:, 1:])
    to_wrong_texts_BK = 1.0 - torch.einsum("bd,bkd->bk", image_BD, texts_BSD[:, 1:])
    wrong_B2K = torch.cat([to_wrong_images_BK, to_wrong_texts_BK], dim=1)
    return F.relu(positive_B1 - wrong_B2K + margin).mean()


def in_batch_softmax_loss(
    texts_BD: Tensor, images_BD: Tensor, temperature: float | Tensor
) -> Tensor:
    """Returns the symmetric cross-entropy of each pair against all others of the batch.

        (CE(T I^T / tau, own image) + CE(I T^T / tau, own text)) / 2

    This is the InfoNCE loss of CLIP (Radford et al. 2021) with a fixed temperature tau. It precedes
    batch_hard_triplet_loss when nothing is pretrained: with random weights all distances are nearly
    equal, the hardest negative pulls all embeddings into one point, and the triplet loss stays at
    twice the margin. Every row is a negative of every other, so no caption should be true of
    another row's image (PairPool.match_batch says how often one is).
    """
    logits_BB = texts_BD @ images_BD.T / temperature
    target_B = torch.arange(len(logits_BB), device=logits_BB.device)
    return (F.cross_entropy(logits_BB, target_B) + F.cross_entropy(logits_BB.T, target_B)) / 2


def pair_classification_loss(match_logits_B: Tensor, matches_B: Tensor) -> Tensor:
    """Returns the binary cross-entropy of match against mismatch (Geigle et al. 2022, section 3.1).

    match_logits_B: z1 - z0 of the two-class head; with it, the binary form equals the two-class
    softmax of the paper's code. matches_B: 1 where the pair belongs together, else 0.
    """
    return F.binary_cross_entropy_with_logits(match_logits_B, matches_B.to(match_logits_B.dtype))


def pair_triplet_loss(match_logits_B: Tensor, margin: float) -> Tensor:
    """Returns the mean hinge by which each mismatch comes within the margin of its match.

        mean_i max(0, m + p(mismatch_i) - p(match_i))

    with p the probability of a match and m the margin: what UNITER trains retrieval by (Chen et al.
    2020), over one mismatch a match.

    match_logits_B: matches first, then each one's mismatch in the same order.
    """
    match_P, mismatch_P = match_logits_B.float().sigmoid().chunk(2)
    return F.relu(margin + mismatch_P - match_P).mean()


def masked_word_loss(word_logits_MV: Tensor, words_M: Tensor, masked_count: float) -> Tensor:
    """Returns the cross-entropy of masked words: its sum divided by `masked_count`.

    `masked_count` is M; where several processes share a batch, the mean of their M.
    """
    return F.cross_entropy(word_logits_MV.float(), words_M, reduction="sum") / masked_count


def labelling_loss(class_logits_BRC: Tensor, classes_BR: Tensor) -> Tensor:
    """Returns the cross-entropy of each image token's drawing.

    Class 0 means that no drawing's centre lies under the token, as is true of most; its weight of
    0.2 gives the drawings about the same influence.
    """
    weight_C = torch.ones(class_logits_BRC.shape[-1], device=class_logits_BRC.device)
    weight_C[0] = 0.2
    return F.cross_entropy(class_logits_BRC.flatten(0, 1).float(), classes_BR.flatten(), weight_C)
