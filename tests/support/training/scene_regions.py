"""Writes the true boxes of scenes' drawings as a detector's file of regions.

Shapes: n drawings of one scene.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.records import Record
from tandem.corpus.regions.regions import FEATURE_WIDTH
from tandem.corpus.scenes.drawing import SCENE_SIZE, ScenePng, place_drawings
from tandem.modeling.image_sources.region_tokens import region_tokens, write_regions

_MOST = 12
_NOISE = 0.5


def write_scene_regions(path: Path, records: Iterable[Record]) -> Path:
    """Writes a region for each drawing: a vector of its noun, with noise of the record."""
    write_regions(path, {each.record_id: _regions(each) for each in records}, _MOST)
    return path


def _regions(record: Record) -> NDArray[np.float16]:
    assert isinstance(record.image, ScenePng)
    placed = list(place_drawings(record.image.scene))
    nouns_nF = np.stack([_of_noun(each.group.noun.codepoints) for each in placed])
    random = np.random.default_rng(crc32(record.record_id.encode()))
    features_nF = nouns_nF + _NOISE * random.standard_normal(nouns_nF.shape)
    boxes_n4 = np.array([[p.x, p.y, p.x + p.size, p.y + p.size] for p in placed], float)
    return region_tokens(features_nF, boxes_n4, SCENE_SIZE, SCENE_SIZE)


@cache
def _of_noun(codepoints: str) -> NDArray[Any]:
    return np.random.default_rng(crc32(codepoints.encode())).standard_normal(FEATURE_WIDTH)
