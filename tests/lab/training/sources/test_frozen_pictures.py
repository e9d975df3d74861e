"""Pictures whose tokens a frozen network makes: each view once for all runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tandem.corpus.readable_records import picture_pixels
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.runs.run import Run
from tandem.lab.training.sources.frozen_pictures import FrozenPictures
from tandem.lab.training.sources.kept_tokens import view_digest
from tandem.lab.training.sources.picture_views import picture_view
from tandem.modeling.config import JointConfig
from tests.support.training.emoji_tuning import records
from tests.support.training.small_runs import fresh_run

RECORDS = records("train", 5)
CONFIG = JointConfig(vocabulary_size=100, image_source="efficientnet_lite0", image_size=64)
PIXELS = partial(picture_pixels, rules=CONFIG.image_rules)


class MeanColours(nn.Module):
    """Stands for a network: the mean colour of each quarter, at the width of the real one."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))
        self.seen = 0

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen += len(pixels)
        grid = nn.functional.avg_pool2d(pixels.permute(0, 3, 1, 2).float() / 255, 32)
        tokens = grid.flatten(2).transpose(1, 2) * self.factor
        return nn.functional.pad(tokens, (0, 1277)).half()


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Run:
    return fresh_run(tiny(1), tmp_path / "run")


def pictures(folder: Path, view_count: int, view_stretch: float = 0.0) -> FrozenPictures:
    """Returns the pictures of the records, with tokens kept in the folder."""
    return FrozenPictures(RECORDS, PIXELS, CONFIG, folder, view_count, view_stretch)


def test_a_picture_is_encoded_once_for_all_runs(tmp_path: Path, run: Run) -> None:
    """Further views and another network's tokens are added; the order is that of the pictures."""
    network = MeanColours()

    plain = pictures(tmp_path, 1).tokens(network, run, "tokens")
    assert network.seen == 5
    viewed = pictures(tmp_path, 3).tokens(network, run, "tokens")
    assert network.seen == 15
    again = pictures(tmp_path, 3).tokens(network, run, "tokens")
    assert network.seen == 15

    tokens, mask = viewed.of([0, 1, 2, 3, 4])
    assert torch.equal(tokens, plain.of(range(5))[0])
    assert torch.equal(tokens, again.of(range(5))[0])
    assert mask.sum() == tokens.shape[0] * tokens.shape[1]
    # View 1 of picture n is number n + 5: mirrored, so left and right change places.
    mirrored = viewed.of([5 + 2])[0][0]
    torch.testing.assert_close(mirrored, tokens[2][[1, 0, 3, 2]], atol=2e-3, rtol=0)
    other = pictures(tmp_path, 1).tokens(MeanColours(0.5), run, "tokens")
    torch.testing.assert_close(other.of([0])[0], tokens[:1] / 2)
    assert len([each for each in tmp_path.iterdir() if each.name.startswith("effi")]) == 2


def test_the_same_weights_in_another_configuration_are_another_network(
    tmp_path: Path, run: Run
) -> None:
    """An activation is in no weight."""
    network = MeanColours()
    for act in ("gelu", "quick_gelu"):
        vision = {"network": {"hidden_act": act}, "mean": [0.5] * 3, "std": [0.5] * 3}
        config = replace(
            CONFIG,
            image_source="vision_tower",
            vision=vision,
            vision_token_count=4,
            vision_token_width=1280,
        )
        FrozenPictures(RECORDS, PIXELS, config, tmp_path, 1).tokens(network, run, "tokens")
    assert network.seen == 10


def test_a_crop_is_the_same_in_every_run_and_differs_by_picture() -> None:
    """It has the picture's size; the picture itself and its mirror image keep every pixel."""
    pixels = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8)

    crops = [picture_view(pixels, 2, key) for key in (b"a", b"a", b"b")]

    assert np.array_equal(crops[0], crops[1])
    assert not np.array_equal(crops[0], crops[2])
    assert crops[0].shape == pixels.shape
    assert crops[0].dtype == np.uint8
    assert np.array_equal(picture_view(pixels, 0, b"a"), pixels)
    assert np.array_equal(picture_view(pixels, 1, b"a"), pixels[:, ::-1])


def test_a_stretch_changes_only_the_aspect_of_crops(tmp_path: Path, run: Run) -> None:
    """Stored tokens of the other views are reused, and a stretch of 0 keeps every digest."""
    network = MeanColours()
    plain = pictures(tmp_path, 3).tokens(network, run, "tokens").of(range(15))[0]
    assert network.seen == 15

    stretched = pictures(tmp_path, 3, 0.3).tokens(network, run, "tokens").of(range(15))[0]

    assert network.seen == 20
    assert torch.equal(stretched[:10], plain[:10])
    assert all(not torch.equal(stretched[n], plain[n]) for n in range(10, 15))
    assert view_digest(b"picture", 2) == view_digest(b"picture", 2, 0.0)
    assert len({view_digest(b"picture", 2, stretch) for stretch in (0.0, 0.2, 0.3)}) == 3


def test_a_crop_is_as_wide_as_its_stretch_allows() -> None:
    """Columns and rows count up, so the crop's range of them says how much of the picture it has.

    Without a stretch both shares are the root of the area's; with one their ratio varies, each at
    most the whole picture.
    """
    ramp = np.linspace(0, 200, 200)
    pixels = np.zeros((200, 200, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = ramp[None, :], ramp[:, None]
    ratios: dict[float, list[float]] = {0.0: [], 0.4: []}
    for stretch, found in ratios.items():
        for number in range(2, 40):
            view = picture_view(pixels, number, b"key", stretch).astype(int)
            found.append(float(np.ptp(view[..., 0]) / np.ptp(view[..., 1])))

    assert all(abs(ratio - 1) < 0.05 for ratio in ratios[0.0])
    assert min(ratios[0.4]) < 0.8
    assert max(ratios[0.4]) > 1.25
    assert all(0.6 < ratio < 1.65 for ratio in ratios[0.4])  # exp(0.4) is 1.49, and rounding


def test_tokens_are_in_the_runs_precision(tmp_path: Path, run: Run) -> None:
    """Which names a folder of its own."""
    assert run.compute.precision == "fp32"
    pictures(tmp_path, 1).tokens(MeanColours(), run, "tokens")
    run.recipe = replace(run.recipe, precision="bf16")
    pictures(tmp_path, 1).tokens(MeanColours(), run, "tokens")

    assert len([each for each in tmp_path.iterdir() if each.name.startswith("effi")]) == 2
