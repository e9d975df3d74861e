"""Mines hard negatives: the wrong texts and images that the BE finds nearest.

This is ANCE as Geigle et al. tried it (arXiv v1, appendix A.3): each picture's nearest texts and
each text's nearest pictures other than its own, sampled by the softmax of their cosines.

Shapes: N pictures, each with one text; K nearest; D width.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK_ROW_COUNT = 256


@dataclass(frozen=True, slots=True)
class NearestWrong:
    """Holds the K nearest wrong texts or images of each picture, with their cosines."""

    numbers: Tensor
    """int32 [N, K]."""
    cosines: Tensor
    """float32 [N, K]."""

    def draw(self, number: int, count: int, rng: random.Random) -> list[int]:
        """Returns `count` different ones, drawn by the softmax of their cosines."""
        generator = torch.Generator().manual_seed(rng.getrandbits(63))
        chances_K = self.cosines[number].softmax(0)
        drawn = torch.multinomial(chances_K, count, replacement=False, generator=generator)
        return [int(other) for other in self.numbers[number, drawn]]


@dataclass(frozen=True, slots=True)
class MinedNegatives:
    """Holds what one mining found, in use until the next."""

    texts_of_image: NearestWrong
    images_of_text: NearestWrong

    def to_tensors(self) -> dict[str, Tensor]:
        """Returns tensors for the run state: a resumed run no longer has the weights that mined."""
        return {
            "texts": self.texts_of_image.numbers,
            "text_cosines": self.texts_of_image.cosines,
            "images": self.images_of_text.numbers,
            "image_cosines": self.images_of_text.cosines,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "MinedNegatives":
        return cls(
            NearestWrong(tensors["texts"], tensors["text_cosines"]),
            NearestWrong(tensors["images"], tensors["image_cosines"]),
        )


def nearest_wrong(
    texts_ND: Tensor, images_ND: Tensor, groups_N: Tensor, neighbour_count: int
) -> MinedNegatives:
    """Returns the nearest rows of other groups in both directions, nearest first.

    texts_ND, images_ND: unit-length embeddings, row n of both is one pair. groups_N: int64, equal
    where one's text may be true of the other's image. A list is shorter than `neighbour_count`
    where the largest group leaves fewer.
    """
    left = len(groups_N) - int(groups_N.unique(return_counts=True)[1].max())
    count = min(neighbour_count, left)
    return MinedNegatives(
        texts_of_image=_nearest(images_ND, texts_ND, groups_N, count),
        images_of_text=_nearest(texts_ND, images_ND, groups_N, count),
    )


def _nearest(from_ND: Tensor, to_ND: Tensor, groups_N: Tensor, count: int) -> NearestWrong:
    numbers, cosines = [], []
    chunks = zip(from_ND.split(_CHUNK_ROW_COUNT), groups_N.split(_CHUNK_ROW_COUNT), strict=True)
    for rows_CD, groups_C in chunks:
        cosines_CN = rows_CD @ to_ND.T
        cosines_CN.masked_fill_(groups_C[:, None] == groups_N[None, :], -torch.inf)
        nearest = cosines_CN.topk(count)
        numbers.append(nearest.indices.int())
        cosines.append(nearest.values)
    return NearestWrong(torch.cat(numbers).cpu(), torch.cat(cosines).cpu())
