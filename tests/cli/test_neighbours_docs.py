"""docs/neighbours.md: its Python runs as it stands there, with fewer epochs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.lab.neighbours.leaprr.config import leaprr_config
from tandem.lab.neighbours.leaprr.saved_model import load_leaprr
from tandem.lab.neighbours.lists.neighbour_file import save_neighbours
from tests.support.neighbours.planted_corpus import planted_neighbours

PAGE = (Path(__file__).parents[2] / "docs/neighbours.md").read_text(encoding="utf-8")
[CODE] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_pages_python_reorders_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both methods order all texts of each image, and the file has the networks."""
    monkeypatch.chdir(tmp_path)
    corpora = [planted_neighbours(seed, image_count=70, depth=64) for seed in range(3)]
    for near, name in zip(corpora, ("train", "dev", "test"), strict=True):
        save_neighbours(tmp_path / f"{name}.neighbours", near)
    test = corpora[-1]
    similarity = test.images @ test.texts.T
    names: dict[str, Any] = {"similarity": similarity}
    code = CODE.replace("epoch_count=10", "epoch_count=1")

    exec(compile(code, "docs/neighbours.md", "exec"), names)

    by_text = np.tile(np.arange(len(test.texts)), (len(test.images), 1))
    assert (np.sort(names["order"], axis=1) == by_text).all()
    assert (names["order"] != np.argsort(-similarity, axis=1)).any()
    assert (np.sort(names["orders"].texts_of_image, axis=1) == by_text).all()
    assert load_leaprr(tmp_path / "leaprr.safetensors").config == leaprr_config("paper")
