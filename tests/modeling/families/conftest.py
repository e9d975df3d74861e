"""Folders of tiny published models, each written once a worker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.modeling.published_cross_encoders import (
    published_blip,
    published_blip2,
    published_vilt,
    published_visual_bert,
)
from tests.support.modeling.published_pairs import (
    published_clip,
    published_metaclip_2,
    published_siglip,
)

MAKERS: dict[str, Callable[[Path], object]] = {
    "blip": published_blip,
    "blip-2": published_blip2,
    "clip": published_clip,
    "clip of old files": lambda folder: published_clip(folder, end_id=2),
    "metaclip_2": published_metaclip_2,
    "siglip": published_siglip,
    "siglip 2": lambda folder: published_siglip(folder, is_second=True),
    "vilt": published_vilt,
    "visual_bert": published_visual_bert,
}


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a published model by its name in MAKERS; tests must not change it."""
    made: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("published")
            MAKERS[name](made[name])
        return made[name]

    return folder_of
