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
import torch

from benchmarks.support.device_search import DeviceModel, K, ranked, reranked
from tandem.corpus.records import Record
from tandem.model_io.repository.manifest import Manifest

RETURN_N = 10

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
        faiss.omp_set_num_threads(1)  # as index_svc does
        self._model = DeviceModel(repository, manifest, torch.device("cpu"))
        self._ids: list[str] = []
        self._tokens_NRD = torch.empty(0)
        self._index = faiss.IndexFlatIP(manifest.embedding_dim)

    @torch.inference_mode()
    def add(self, records: Sequence[Record]) -> None:
        """Encodes the records' pictures and indexes them, once."""
        self._ids = [record.record_id for record in records]
        self._tokens_NRD = self._model.image_tokens(records)
        self._index.add(self._model.embed_images(self._tokens_NRD).numpy())

    def search(self, text: str) -> list[str]:
        """Returns the ids of the best items."""
        return self.search_together([text], K)[0]

    @torch.inference_mode()
    def search_together(self, texts: Sequence[str], pair_batch_size: int) -> list[list[str]]:
        """Returns the ids of the best items for each text, the pairs of all in batches."""
        ids_BT, mask_BT = self._model.tokenize(texts)
        _, near_BK = self._index.search(self._model.embed_texts(ids_BT, mask_BT).numpy(), K)
        rows_BK = torch.from_numpy(near_BK)
        logits_BK = reranked(
            self._model, ids_BT, mask_BT, rows_BK, self._tokens_NRD.__getitem__, pair_batch_size
        )
        return [[self._ids[row] for row in rows[:RETURN_N]] for rows in ranked(rows_BK, logits_BK)]
