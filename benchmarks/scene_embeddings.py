"""Embeddings that the shipped model makes of scenes: pictures as items, captions as queries."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch
from clustered_vectors import TRUTH_K, nearest
from peers.measurement import Vectors

from tandem.cli.corpora import open_corpus
from tandem.model_io.buckets import pad_texts
from tandem.model_io.special_tokens import special_tokens
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.image_tokens import PixelTokens

_BATCH_SIZE = 64


@torch.inference_mode()
def write_scenes(folder: Path, scene_count: int, query_count: int, seed: int) -> Vectors:
    """Writes what `clustered_vectors.write_vectors` does, unless it is there already."""
    vectors = Vectors(folder)
    if (folder / "truth.npy").is_file():
        return vectors
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = load_checkpoint(default_checkpoint())
    model, special = checkpoint.model, special_tokens(checkpoint.tokenizer)
    pixels = PixelTokens(model.image_backbone, model.config.image_size)
    texts = TextPreprocessor(checkpoint.tokenizer, model.config.max_text_tokens)
    scenes = open_corpus("scenes", "val", seed, scene_count)
    items, queries = [], []
    while records := list(islice(scenes, _BATCH_SIZE)):
        tokens_BRD, mask_BR = pixels.of(records)
        items.append(model.embed_images(tokens_BRD, special.cls_id, mask_BR).numpy())
        if len(queries) * _BATCH_SIZE < query_count:
            ids = [texts.token_ids(record.captions[0].text) for record in records]
            ids_BT, mask_BT = pad_texts(ids, max(map(len, ids)), special.pad_id)
            embedded_BD = model.embed_texts(torch.from_numpy(ids_BT), torch.from_numpy(mask_BT))
            queries.append(embedded_BD.numpy())
    items_ND, queries_QD = np.concatenate(items), np.concatenate(queries)[:query_count]
    np.save(folder / "items.npy", items_ND)
    np.save(folder / "queries.npy", queries_QD)
    np.save(folder / "truth.npy", nearest(items_ND, queries_QD, TRUTH_K)[1])  # last: all is there
    return vectors
