"""Weights and inputs of the scores that the authors' own code computed once.

tests/modeling/families/authors_scores.json holds the scores, the names and shapes of the weights,
and says which code gave them. Numbers are of RandomState, whose stream NumPy keeps for good.

Shapes: n regions, F features.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.support.modeling.published_folders import WORDS, xlm_r_tokenizer

Weights = dict[str, Tensor]
SCORES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "modeling/families/authors_scores.json").read_text()
)
_CONFIG = {
    "vocab_size": 4 + len(WORDS),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}


def authors_weights(*names: str, without: str = "") -> Weights:
    """Returns the weights that the file lists under these names, whose names lose a prefix."""
    return dict(each for name in names for each in _filled(SCORES["weights"][name], without))


def authors_regions(
    seed: int, regions: int, feature_width: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns features [n, F] and boxes [n, 4] that float16 holds exactly."""
    random = np.random.RandomState(seed)
    features_nF = np.floor(random.random_sample((regions, feature_width)) * 64) / 64
    corners = random.randint(0, 8, (regions, 2)) / 16
    sides = random.randint(1, 9, (regions, 2)) / 16
    boxes_n4 = np.concatenate([corners, corners + sides], axis=1)
    return features_nF.astype(np.float32), boxes_n4.astype(np.float32)


def write_authors_bert(folder: Path, weights: Weights, **fields: object) -> Path:
    """Writes a folder as OSCAR and UNITER have it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(_CONFIG | fields))
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return folder


def write_authors_m3p(folder: Path, weights: Weights) -> Path:
    """Writes a folder as M3P has it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": weights}, folder / "m3p_under_weights.pth")
    xlm_r_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _filled(shapes: dict[str, list[int]], without: str) -> Iterator[tuple[str, Tensor]]:
    for pattern, shape in shapes.items():
        stem = pattern.removeprefix(without)
        for name in dict.fromkeys(stem.replace("#", layer) for layer in "01"):
            random = np.random.RandomState(zlib.crc32(name.encode()))
            numbers = random.standard_normal(shape) / np.sqrt(shape[-1])
            is_scale = len(shape) == 1 and name.endswith("weight")
            yield name, torch.from_numpy((numbers + is_scale).astype(np.float32))
