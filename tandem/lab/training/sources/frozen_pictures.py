"""Computes image tokens with a network that never learns, once for all runs (kept_tokens.py).

Shapes: N pictures, V views, R image tokens, D token width.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.corpus.readable_records import picture_bytes
from tandem.corpus.records import Record
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.runs.run import Run
from tandem.lab.training.sources.kept_tokens import KeptTokens, view_digest
from tandem.lab.training.sources.picture_views import picture_view
from tandem.modeling.config import JointConfig

_CHUNK_SIZE = 160
_THREAD_COUNT = os.cpu_count() or 1
_SHOWN_DIGITS = 12


class FrozenPictures:
    """Pictures of records, whose tokens a frozen network makes."""

    def __init__(
        self,
        records: Sequence[Record],
        content: Callable[[Record], NDArray[np.uint8]],
        config: JointConfig,
        folder: Path,
        view_count: int = 1,
        view_stretch: float = 0.0,
    ) -> None:
        self._records, self._content, self._config = records, content, config
        self._folder, self._view_count, self._view_stretch = folder, view_count, view_stretch

    def tokens(self, backbone: nn.Module, run: Run, stage: str) -> HeldImages:
        """Returns the tokens of every view of every picture; only the first process encodes.

        Number n + N * v is view v of picture n.
        """
        config = self._config
        made_by = {
            "image_source": config.image_source,
            "image_size": config.image_size,
            "picture_fit": config.picture_fit,
            "precision": run.recipe.precision,
            "weights_sha256": _weights_sha256(backbone),
        }
        if config.vision is not None:  # its activation and norms are in no weight
            made_by["vision_sha256"] = sha256(
                json.dumps(config.vision, sort_keys=True).encode()
            ).hexdigest()
        name = sha256(repr(sorted(made_by.items())).encode()).hexdigest()[:_SHOWN_DIGITS]
        folder = self._folder / f"{config.image_source}-{name}"
        shape = (config.image_token_count, config.token_width)
        digests = [
            view_digest(picture, view, self._view_stretch)
            for picture in map(picture_bytes, self._records)
            for view in range(self._view_count)
        ]
        if run.processes.is_first:
            self._encode(KeptTokens(folder, made_by, shape), digests, backbone, run, stage)
        run.processes.wait()
        kept = KeptTokens(folder, made_by, shape)
        rows_NV = kept.rows(digests).reshape(-1, self._view_count)
        return HeldImages(kept.mapped(), rows_NV.T.flatten())

    @torch.inference_mode()
    def _encode(
        self, kept: KeptTokens, digests: Sequence[bytes], backbone: nn.Module, run: Run, stage: str
    ) -> None:
        with kept.writing():
            first_place = {digest: place for place, digest in reversed([*enumerate(digests)])}
            missing = sorted(p for digest, p in first_place.items() if digest not in kept)
            run.progress(stage, 0, len(missing), "")
            # Decoding, a codec's and a filter's work, leaves the interpreter to other threads.
            with ThreadPoolExecutor(_THREAD_COUNT) as threads:
                for done in range(0, len(missing), _CHUNK_SIZE):
                    places = missing[done : done + _CHUNK_SIZE]
                    by_number = groupby(places, lambda place: place // self._view_count)
                    jobs = [(number, [*some]) for number, some in by_number]
                    made = threads.map(lambda job: self._views(job[0], job[1], digests), jobs)
                    pixels_BHWC = torch.from_numpy(
                        np.stack([view for some in made for view in some])
                    )
                    with run.compute.autocast():
                        tokens_BRD: Tensor = backbone(run.compute.put(pixels_BHWC))
                    kept.add([digests[place] for place in places], tokens_BRD.cpu().numpy())
                    run.progress(stage, done + len(places), len(missing), "")

    def _views(
        self, number: int, places: Sequence[int], digests: Sequence[bytes]
    ) -> list[NDArray[np.uint8]]:
        """Returns some views of one picture, which is decoded once."""
        pixels = self._content(self._records[number])
        # The first view's digest names the picture.
        key = digests[number * self._view_count]
        return [
            picture_view(pixels, place % self._view_count, key, self._view_stretch)
            for place in places
        ]


def _weights_sha256(module: nn.Module) -> str:
    digest = sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
