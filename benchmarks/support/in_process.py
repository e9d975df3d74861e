"""The arithmetic of a search in one process: what the served one is held against.

The exported TorchScript, a flat FAISS index and a sort, with nothing between them. One query at a
time, or many together as somebody would write it who batches by hand.

Shapes: N items, B texts, K candidates of a text, T text tokens, R image tokens, D token width.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import faiss
import numpy as np
import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.model_io.inference.buckets import bucket_of, pad_texts
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
    model_file,
)
from tandem.model_io.texts.text import TextPreprocessor

K = 20
RETURN_N = 10

_IMAGE_BATCH = 32
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "2000000000"}


def keep_memory() -> None:
    """Starts this program again with the allocator's settings that Triton is started with.

    Without them torch's activations are faulted in again at every call, on this side alone.
    """
    if not _ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | _ALLOCATOR)


class InProcess:
    """The same models over the same items."""

    def __init__(self, repository: Path, manifest: Manifest, thread_count: int) -> None:
        """Loads the models that Triton serves."""
        torch.set_num_threads(thread_count)
        torch.jit.set_fusion_strategy([])  # as the backend does
        faiss.omp_set_num_threads(1)  # as index_svc does
        self._manifest = manifest
        self._backbone = torch.jit.load(str(model_file(repository, IMAGE_BACKBONE))).eval()
        self._encoder = torch.jit.load(str(model_file(repository, JOINT_ENCODER))).eval()
        self._texts = TextPreprocessor.open(repository, manifest.text)
        self._ids: list[str] = []
        self._tokens: list[Tensor] = []
        self._tokens_NRD = torch.empty(0)
        self._index = faiss.IndexFlatIP(manifest.embedding_dim)

    @torch.inference_mode()
    def add(self, records: Sequence[Record]) -> None:
        """Encodes the records' pictures and indexes them."""
        size = self._manifest.picture.size
        for start in range(0, len(records), _IMAGE_BATCH):
            batch = records[start : start + _IMAGE_BATCH]
            pixels = np.stack(
                [decode_image(record.image.read(), ImageRules(size=size)) for record in batch]
            )
            tokens_BRD = self._backbone(torch.from_numpy(pixels))
            ids = torch.full((len(batch), 1), self._manifest.cls_id or 0)
            embeddings, _ = self._encoder(ids, torch.ones_like(ids), tokens_BRD, _all(tokens_BRD))
            self._ids += [record.record_id for record in batch]
            self._tokens.append(tokens_BRD)
            self._index.add(embeddings.numpy())
        self._tokens_NRD = torch.cat(self._tokens)

    def search(self, text: str) -> list[str]:
        """Returns the ids of the best items."""
        return self.search_together([text], K)[0]

    @torch.inference_mode()
    def search_together(self, texts: Sequence[str], pair_batch_size: int) -> list[list[str]]:
        """Returns the ids of the best items for each text, the pairs of all in batches."""
        ids_BT, mask_BT = self._padded(texts)
        nothing = torch.zeros(len(texts), 1, self._manifest.token_width, dtype=torch.float16)
        absent = torch.zeros(len(texts), 1, dtype=torch.int64)
        embeddings_BD, _ = self._encoder(ids_BT, mask_BT, nothing, absent)
        _, rows_BK = self._index.search(embeddings_BD.numpy(), K)
        owners = torch.arange(len(texts)).repeat_interleave(K)
        rows = torch.from_numpy(rows_BK).flatten()
        parts = []
        for start in range(0, len(rows), pair_batch_size):
            owner = owners[start : start + pair_batch_size]
            tokens = self._tokens_NRD[rows[start : start + pair_batch_size]]
            parts.append(self._encoder(ids_BT[owner], mask_BT[owner], tokens, _all(tokens))[1])
        logits_BK = torch.cat(parts).view(len(texts), K)
        best_BN = logits_BK.argsort(dim=1, descending=True)[:, :RETURN_N].tolist()
        return [
            [self._ids[rows_K[place]] for place in best]
            for rows_K, best in zip(rows_BK, best_BN, strict=True)
        ]

    def _padded(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        rows = [self._texts.token_ids(text) for text in texts]
        length = bucket_of(max(map(len, rows)), self._manifest.text.lengths)
        ids, mask = pad_texts(rows, length, self._manifest.text.pad_id)
        return torch.from_numpy(ids), torch.from_numpy(mask)


def _all(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64)
