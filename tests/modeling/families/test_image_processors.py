"""Image processors of any family give the pixels that transformers itself makes, or are refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import Fit, ImageRules
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tandem.modeling.published.folder import PublishedFolder
from tests.support.modeling.odd_contents import odd_pictures
from tests.support.modeling.published_pairs import SIZE, write_json

Pixels = NDArray[np.float32]
# Of a number's own size: a picture without rescaling has values of hundreds.
CLOSE = 1e-5
SQUARE = {"height": SIZE, "width": SIZE}

SERVED: dict[str, dict[str, Any]] = {
    "crop": {"size": {"shortest_edge": SIZE}, "crop_size": SQUARE},
    "crop of a larger": {"size": {"shortest_edge": 45}, "crop_size": SIZE},
    "no type": {"image_processor_type": None, "size": SIZE, "crop_size": SIZE},
    "squash": {"size": SQUARE, "do_center_crop": False},
    "squash, then crop": {"size": {"height": 48, "width": 48}, "crop_size": SQUARE},
    "squash to no square, then crop": {"size": {"height": 37, "width": 60}, "crop_size": SQUARE},
    "two numbers": {"size": [SIZE, SIZE], "do_center_crop": False},
    "ViT": {"image_processor_type": "ViTImageProcessor", "size": SQUARE},
    "ViT of one number": {"image_processor_type": "ViTImageProcessorFast", "size": SIZE},
    "SigLIP": {"image_processor_type": "SiglipImageProcessor", "size": SQUARE},
    "BLIP": {"image_processor_type": "BlipImageProcessorPil", "size": SIZE},
    "BiT": {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 40},
        "crop_size": SQUARE,
    },
    "old DeiT": {
        "feature_extractor_type": "DeiTFeatureExtractor",
        "image_processor_type": None,
        "size": 41,
        "crop_size": SIZE,
    },
    "ConvNeXT": {"image_processor_type": "ConvNextImageProcessor", "size": SIZE},
    "ConvNeXT of a share": {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": SIZE},
        "crop_pct": 0.7,
    },
    "padding to what it is": {"size": SQUARE, "do_center_crop": False, "do_pad": True},
    "padding to a size": {"size": SIZE, "crop_size": SIZE, "do_pad": True, "pad_size": SQUARE},
    "one number for all": {"size": SIZE, "crop_size": SIZE, "image_mean": 0.4, "image_std": 0.3},
    "another factor": {"size": SIZE, "crop_size": SIZE, "rescale_factor": 1 / 127.5},
    "no rescaling": {"size": SIZE, "crop_size": SIZE, "do_rescale": False},
    "no mean": {"size": SIZE, "crop_size": SIZE, "do_normalize": False},
    **{
        f"filter {number}": {"size": SIZE, "crop_size": SIZE, "resample": number}
        for number in range(6)
    },
}


def written(folder: Path, fields: Mapping[str, Any]) -> Path:
    """Writes a CLIP's image processor, without the fields that are None."""
    named = {"image_processor_type": "CLIPImageProcessor"} | dict(fields)
    write_json(folder / "config.json", {"model_type": "clip"})
    write_json(
        folder / "preprocessor_config.json",
        {name: value for name, value in named.items() if value is not None},
    )
    return folder


def rules_of(folder: Path) -> tuple[ImageRules, PixelScale]:
    return read_image_rules(PublishedFolder(folder), "CLIPImageProcessor", SIZE)


def ours(folder: Path, files: list[bytes]) -> Pixels:
    rules, scale = rules_of(folder)
    rules.check()
    made = np.stack([decode_image(file, rules) for file in files])
    return scale(torch.from_numpy(made)).numpy()


def theirs(folder: Path, pictures: list[Any]) -> Pixels:
    from transformers import AutoImageProcessor

    made = AutoImageProcessor.from_pretrained(folder)
    # Some classes leave colours alone, and then read no picture but RGB.
    inputs = made(images=pictures, return_tensors="np", do_convert_rgb=True)
    pixels: Pixels = inputs["pixel_values"]
    return pixels


def test_pixels_are_those_of_the_library(tmp_path: Path) -> None:
    files, pictures = map(list, zip(*odd_pictures(30), strict=True))
    for name, fields in SERVED.items():
        folder = written(tmp_path, fields)
        made, expected = ours(folder, files), theirs(folder, pictures)
        assert made.shape == expected.shape == (30, 3, SIZE, SIZE), name
        np.testing.assert_allclose(made, expected, rtol=CLOSE, atol=CLOSE, err_msg=name)


def test_the_cases_differ(tmp_path: Path) -> None:
    [(file, _)] = odd_pictures(10)[9:]
    made = {}
    for number, (name, fields) in enumerate(SERVED.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        made[name] = ours(written(folder, fields), [file])
    for name in ("squash", "squash, then crop", "squash to no square, then crop", "ConvNeXT"):
        assert np.abs(made[name] - made["crop"]).max() > 0.1
    assert np.abs(made["ConvNeXT"] - made["ConvNeXT of a share"]).max() > 0.1
    assert np.abs(made["filter 0"] - made["filter 3"]).max() > 0.1


def test_a_processor_that_the_library_saves_is_read(tmp_path: Path) -> None:
    from transformers import ViTImageProcessorPil

    made = ViTImageProcessorPil(size={"height": SIZE, "width": SIZE}).to_dict()
    write_json(tmp_path / "config.json", {"model_type": "clip"})
    write_json(
        tmp_path / "processor_config.json",
        {"processor_class": "CLIPProcessor", "image_processor": json.loads(json.dumps(made))},
    )
    files, pictures = map(list, zip(*odd_pictures(10), strict=True))
    assert rules_of(tmp_path)[0].fit is Fit.SQUASH
    np.testing.assert_allclose(
        ours(tmp_path, files), theirs(tmp_path, pictures), rtol=CLOSE, atol=CLOSE
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"size": {"height": 60, "width": SIZE}, "do_center_crop": False}, r"as \[1, 3, 60, 32\]"),
        ({"size": {"shortest_edge": SIZE}, "do_center_crop": False}, "makes other pixels"),
        ({"size": SIZE, "crop_size": [SIZE, 16]}, "makes other pixels"),
        ({"size": SIZE, "crop_size": SIZE, "do_resize": False}, "makes other pixels"),
        ({"image_processor_type": "Siglip2ImageProcessor", "size": SIZE}, "makes other pixels"),
        ({"image_processor_type": "__class__"}, "not served"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": 384}, "makes pictures of 384"),
        ({"size": SIZE, "crop_size": SIZE, "image_mean": "0.5"}, "not served"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    tmp_path: Path, fields: Mapping[str, Any], told: str
) -> None:
    folder = written(tmp_path, fields)
    with pytest.raises(PublishedCheckpointInvalid, match=told) as error:
        rules_of(folder)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
