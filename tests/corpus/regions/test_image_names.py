"""One image in the spellings of detectors and corpora, and never another image."""

import pytest

from tandem.corpus.regions.image_names import ImageNames


@pytest.mark.parametrize(
    ("name", "image_id"),
    [
        ("COCO_val2014_000000391895.jpg", "391895"),
        ("a", "a.jpg"),
        ("a.jpg", "a.png"),
        ("007", "7"),
    ],
)
def test_other_spellings_are_found(name: str, image_id: str) -> None:
    assert ImageNames(["other", image_id]).find(name) == image_id
    assert ImageNames(["other", name]).find(image_id) == name


@pytest.mark.parametrize(
    ("name", "image_id"), [("IMG_7", "7"), ("val_000000000007", "train_000000000007")]
)
def test_other_images_are_not(name: str, image_id: str) -> None:
    """A short number may number anything; two names with one number are two images."""
    assert ImageNames([image_id]).find(name) is None


def test_a_name_of_two_images_is_ambiguous() -> None:
    names = ImageNames(["a.jpg", "a.png", "train_000000000007", "val_000000000007"])

    assert names.find("a") is None
    assert names.find("7") is None
    assert names.find("a.png") == "a.png"
    assert names.find("val_000000000007") == "val_000000000007"
