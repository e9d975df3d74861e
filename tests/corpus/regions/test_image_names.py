"""One image in the spellings of detectors and corpora, and never another image."""

from tandem.corpus.regions.image_names import ImageNames


def test_other_spellings_are_found() -> None:
    for name, image_id in (
        ("COCO_val2014_000000391895.jpg", "391895"),
        ("a", "a.jpg"),
        ("a.jpg", "a.png"),
        ("007", "7"),
    ):
        assert ImageNames(["other", image_id]).find(name) == image_id
        assert ImageNames(["other", name]).find(image_id) == name


def test_other_images_are_not() -> None:
    """A short number may number anything; two names with one number are two images."""
    assert ImageNames(["7"]).find("IMG_7") is None
    assert ImageNames(["train_000000000007"]).find("val_000000000007") is None


def test_a_name_of_two_images_is_ambiguous() -> None:
    names = ImageNames(["a.jpg", "a.png", "train_000000000007", "val_000000000007"])

    assert names.find("a") is None
    assert names.find("7") is None
    assert names.find("a.png") == "a.png"
    assert names.find("val_000000000007") == "val_000000000007"
