"""A search on one device, in one process: exported models, a flat index and its tokens.

What bench_gpu.py times. Each stage is a method, so that it can be timed alone and with the others.

Shapes: N items, M items that have image tokens, B texts, K candidates of a text, T text tokens,
R image tokens, D token width, d dimensions of an embedding.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.model_io.inference.buckets import bucket_of, pad_texts
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
    model_file,
)
from tandem.model_io.texts.text import TextPreprocessor

K = 20
_IMAGE_BATCH = 64
_DRAW_COUNT = 100_000
# How far an item made from a picture is from it: the nearest of a million are then of many.
_NOISE = 0.5


class DeviceModel:
    """Both exported parts on a device, as Triton's backend loads them."""

    def __init__(self, repository: Path, manifest: Manifest, device: torch.device) -> None:
        """Loads the files of a repository."""
        torch.jit.set_fusion_strategy([])  # as the backend does
        self.manifest = manifest
        self.device = device
        self._backbone = self._load(model_file(repository, IMAGE_BACKBONE))
        self._encoder = self._load(model_file(repository, JOINT_ENCODER))
        self._texts = TextPreprocessor.open(repository, manifest.text)

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Returns ids and mask on the device, int64 [B, T], padded to a served length."""
        rows = [self._texts.token_ids(text) for text in texts]
        length = bucket_of(max(map(len, rows)), self.manifest.text.lengths)
        ids, mask = pad_texts(rows, length, self.manifest.text.pad_id)
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    def image_tokens(self, records: Sequence[Record]) -> Tensor:
        """Returns float16 [n, R, D] of the records' pictures, on the device."""
        parts = []
        for start in range(0, len(records), _IMAGE_BATCH):
            batch = records[start : start + _IMAGE_BATCH]
            pixels = [decode_image(each.image.read(), self.manifest.picture) for each in batch]
            parts.append(self._backbone(torch.from_numpy(np.stack(pixels)).to(self.device)))
        return torch.cat(parts)

    def embed_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns float32 [B, d]."""
        nothing = torch.zeros(
            len(ids_BT), 1, self.manifest.token_width, dtype=torch.float16, device=self.device
        )
        absent = torch.zeros(len(ids_BT), 1, dtype=torch.int64, device=self.device)
        embeddings: Tensor = self._encoder(ids_BT, mask_BT, nothing, absent)[0]
        return embeddings

    def embed_images(self, tokens_MRD: Tensor) -> Tensor:
        """Returns float32 [M, d]."""
        parts = []
        for tokens_BRD in tokens_MRD.split(_IMAGE_BATCH):
            ids = torch.full((len(tokens_BRD), 1), self.manifest.cls_id or 0, device=self.device)
            parts.append(self._encoder(ids, torch.ones_like(ids), tokens_BRD, _all(tokens_BRD))[0])
        return torch.cat(parts)

    def match_logits(self, ids_BT: Tensor, mask_BT: Tensor, tokens_BRD: Tensor) -> Tensor:
        """Returns float32 [B]."""
        logits_B1: Tensor = self._encoder(ids_BT, mask_BT, tokens_BRD, _all(tokens_BRD))[1]
        return logits_B1[:, 0]

    def _load(self, path: Path) -> torch.jit.ScriptModule:
        return torch.jit.load(str(path), map_location=self.device).eval()


class DeviceSearch:
    """A model, embeddings of N items in one matrix, and tokens of M of them, all on the device.

    The tokens may lie in the host's memory instead, as in a service whose storage is a disk's.
    """

    def __init__(
        self, model: DeviceModel, items_Nd: Tensor, tokens_MRD: Tensor, pair_batch_size: int
    ) -> None:
        """The matrix product is in the type that the items have."""
        self.model = model
        self.items_Nd = items_Nd
        self.tokens_MRD = tokens_MRD
        self._pair_batch_size = pair_batch_size

    @torch.inference_mode()
    def search(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns each text's K items, best first, as the cross-encoder ranks them."""
        ids_BT, mask_BT = self.model.tokenize(texts)
        rows_BK = self.nearest(self.model.embed_texts(ids_BT, mask_BT))
        logits_BK = self.rerank(ids_BT, mask_BT, rows_BK)
        return ranked(rows_BK, logits_BK)

    def nearest(self, embeddings_Bd: Tensor) -> Tensor:
        """Returns the places of the K nearest items of all, int64 [B, K]."""
        return (embeddings_Bd.to(self.items_Nd.dtype) @ self.items_Nd.T).topk(K).indices

    def tokens_of(self, rows: Tensor) -> Tensor:
        """Returns the image tokens of items, on the device: past M they are those of an earlier."""
        places = rows % len(self.tokens_MRD)
        return self.tokens_MRD[places.to(self.tokens_MRD.device)].to(self.model.device)

    def rerank(self, ids_BT: Tensor, mask_BT: Tensor, rows_BK: Tensor) -> Tensor:
        """Returns the cross-encoder's logits of each text with its candidates, [B, K]."""
        return reranked(self.model, ids_BT, mask_BT, rows_BK, self.tokens_of, self._pair_batch_size)


def reranked(
    model: DeviceModel,
    ids_BT: Tensor,
    mask_BT: Tensor,
    rows_BK: Tensor,
    tokens_of: Callable[[Tensor], Tensor],
    pair_batch_size: int,
) -> Tensor:
    """Returns the logits of each text with its candidates, [B, K], all pairs in batches."""
    rows = rows_BK.flatten()
    owners = torch.arange(len(ids_BT), device=rows.device).repeat_interleave(K)
    parts = []
    for start in range(0, len(rows), pair_batch_size):
        part = slice(start, start + pair_batch_size)
        owner = owners[part]
        parts.append(model.match_logits(ids_BT[owner], mask_BT[owner], tokens_of(rows[part])))
    return torch.cat(parts).view(-1, K)


def ranked(rows_BK: Tensor, logits_BK: Tensor) -> list[list[int]]:
    """Returns the rows by falling logit; what is on a device is waited for."""
    return rows_BK.gather(1, logits_BK.argsort(dim=1, descending=True)).tolist()


def drawn_items(embeddings_Md: Tensor, item_count: int, seed: int) -> Tensor:
    """Returns float32 [N, d] of unit length: the embeddings over and over, each with noise."""
    generator = torch.Generator(embeddings_Md.device).manual_seed(seed)
    items_Nd = embeddings_Md.new_empty(item_count, embeddings_Md.shape[1])
    for start in range(0, item_count, _DRAW_COUNT):
        stop = min(start + _DRAW_COUNT, item_count)
        rows = torch.arange(start, stop, device=embeddings_Md.device) % len(embeddings_Md)
        noise = torch.randn(
            stop - start, items_Nd.shape[1], generator=generator, device=items_Nd.device
        )
        drawn = embeddings_Md[rows] + _NOISE * torch.nn.functional.normalize(noise, dim=-1)
        items_Nd[start:stop] = torch.nn.functional.normalize(drawn, dim=-1)
    return items_Nd


def spread_tokens(tokens_GRD: Tensor, item_count: int) -> Tensor:
    """Returns tokens of M items, those given over and over, each in memory of its own."""
    repeats = -(-item_count // len(tokens_GRD))
    return tokens_GRD.repeat(repeats, 1, 1)[:item_count].contiguous()


def _all(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)
