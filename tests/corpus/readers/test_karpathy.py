"""Karpathy's layout: read as published, refused by name when broken, written to read back."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tandem.corpus.emoji import emoji_records
from tandem.corpus.errors import (
    CorpusMalformed,
)
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.karpathy import read_karpathy
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tests.support.corpus.written_karpathy import write_karpathy

Document = dict[str, Any]


def an_image(imgid: int, split: str, filename: str, sentids: list[int], **more: object) -> Document:
    # The file lists sentences in another order than sentids, which is what has to count.
    sentences = [
        {"raw": f"caption {sentid}", "tokens": ["caption"], "imgid": imgid, "sentid": sentid}
        for sentid in sorted(sentids, reverse=True)
    ]
    image = {"filename": filename, "imgid": imgid, "split": split, "sentids": sentids}
    return image | {"sentences": sentences} | more


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """A split file like dataset_coco.json, with an image file for each entry."""
    document = {
        "dataset": "coco",
        "images": [
            an_image(0, "train", "t1.jpg", [10, 11], filepath="train2014", cocoid=1),
            an_image(1, "restval", "v1.jpg", [12], filepath="val2014", cocoid=2),
            an_image(
                2, "test", "v2.jpg", [31, 25, 27, 26, 29, 28, 30], filepath="val2014", cocoid=3
            ),
            an_image(3, "val", "v3.jpg", [40], filepath="val2014", cocoid=4),
        ],
    }
    for image in document["images"]:
        assert isinstance(image, dict)
        path = tmp_path / image["filepath"] / image["filename"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"pixels of " + path.name.encode())
    return written(document, tmp_path)


def written(document: object, folder: Path) -> Path:
    path = folder / "dataset_coco.json"
    path.write_text(json.dumps(document))
    return path


def record_ids(json_path: Path, split: str, restval_in_train: bool = True) -> list[str]:
    records = read_karpathy(json_path, json_path.parent, split, restval_in_train=restval_in_train)
    return [record.record_id for record in records]


def caption_ids(record: Record) -> list[str]:
    return [caption.caption_id for caption in record.captions]


def test_a_coco_entry_becomes_a_record(coco: Path) -> None:
    """The image lies under filepath, captions follow sentids, and the picture is its own family."""
    (record,) = read_karpathy(coco, coco.parent, "test")

    assert (record.record_id, record.family, record.split) == ("v2", "v2", "test")
    assert caption_ids(record) == ["v2#31", "v2#25", "v2#27", "v2#26", "v2#29", "v2#28", "v2#30"]
    assert record.captions[0].text == "caption 31"
    assert record.captions[0].language == "en"
    assert record.image.read() == b"pixels of v2.jpg"


@pytest.mark.parametrize(
    ("keys", "language"),
    [
        ({"lang": "cs"}, "cs"),
        ({"language": "de", "lang": "cs"}, "de"),
        ({"language": None}, "en"),
    ],
)
def test_a_sentence_may_say_its_language(
    coco: Path, keys: dict[str, object], language: str
) -> None:
    document = json.loads(coco.read_text())
    for image in document["images"]:
        for sentence in image["sentences"]:
            sentence |= keys
    written(document, coco.parent)

    (record,) = read_karpathy(coco, coco.parent, "test")

    assert {each.language for each in record.captions} == {language}


def test_a_caption_has_no_pictures_name(tmp_path: Path) -> None:
    """Flickr30k has a 36979.jpg, and captions up to the number 155,069: all are items."""
    images = [
        an_image(0, "test", "36979.jpg", [0, 1]),
        an_image(7395, "test", "65567.jpg", [36979, 36980]),
    ]

    first, second = read_karpathy(written({"images": images}, tmp_path), tmp_path, "test")

    assert [first.record_id, *caption_ids(first)] == ["36979", "36979#0", "36979#1"]
    assert [second.record_id, *caption_ids(second)] == ["65567", "65567#36979", "65567#36980"]


def test_captions_are_in_sentids_order(coco: Path) -> None:
    (record,) = read_karpathy(coco, coco.parent, "test")

    assert caption_ids(record)[:5] == ["v2#31", "v2#25", "v2#27", "v2#26", "v2#29"]


def test_restval_is_training_data_by_default(coco: Path) -> None:
    """It is never validation data, and can be asked for by its own name."""
    assert record_ids(coco, "train") == ["t1", "v1"]
    assert {record.split for record in read_karpathy(coco, coco.parent, "train")} == {"train"}
    assert record_ids(coco, "train", restval_in_train=False) == ["t1"]
    assert record_ids(coco, "val") == ["v3"]
    assert record_ids(coco, "restval") == ["v1"]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"images": 1}', '{"images": [{}]}'],
)
def test_a_file_of_another_layout_is_refused_at_the_call(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dataset.json"
    path.write_text(text)

    with pytest.raises(CorpusMalformed, match=r"dataset\.json"):
        read_karpathy(path, tmp_path, "test")


def without_raw(image: Document) -> None:
    del image["sentences"][0]["raw"]


def with_a_sentid_too_many(image: Document) -> None:
    image["sentids"].append(99)


def with_a_sentence_twice(image: Document) -> None:
    image["sentences"].append(image["sentences"][0])


def with_a_way_out_of_the_folder(image: Document) -> None:
    image["filename"] = "../../secret.jpg"


@pytest.mark.parametrize(
    "spoil",
    [
        without_raw,
        with_a_sentid_too_many,
        with_a_sentence_twice,
        with_a_way_out_of_the_folder,
    ],
)
def test_a_broken_entry_is_refused_by_its_place(
    coco: Path, spoil: Callable[[Document], None]
) -> None:
    """The error says which image of the file is wrong; where reading continues, it is counted."""
    document = json.loads(coco.read_text())
    spoil(document["images"][0])
    written(document, coco.parent)

    with pytest.raises(CorpusMalformed, match=r"dataset_coco\.json: images\[0\]"):
        list(read_karpathy(coco, coco.parent, "train"))
    left_out = LeftOut(goes_on=True)
    records = read_karpathy(coco, coco.parent, "train", left_out=left_out)
    assert [each.record_id for each in records] == ["v1"]
    assert left_out.count == 1


def test_two_images_of_one_name_are_refused(coco: Path) -> None:
    document = json.loads(coco.read_text())
    document["images"].append(document["images"][0])
    written(document, coco.parent)

    with pytest.raises(CorpusMalformed, match=r"would be called 't1', as is a record"):
        list(read_karpathy(coco, coco.parent, "train"))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"style": None}, "the attribute 'style' is not a text, number, flag or list of texts"),
        ({"style": ["noto", 1]}, "the attribute 'style' is not a text"),
        ({"a style": "noto"}, "the attributes are not valid: 'a style' is not a name"),
    ],
)
def test_attributes_that_no_item_can_have_are_refused(
    coco: Path, attributes: object, says: str
) -> None:
    document = json.loads(coco.read_text())
    document["images"][0]["attributes"] = attributes
    written(document, coco.parent)

    with pytest.raises(CorpusMalformed, match=rf"images\[0\].*{says}"):
        list(read_karpathy(coco, coco.parent, "train"))


def assert_same(read: Record, original: Record) -> None:
    assert read.image.read() == original.image.read()
    assert read == Record(
        original.record_id,
        original.captions,
        original.split,
        original.family,
        read.image,
        original.attributes,
    )


def test_a_written_corpus_reads_back_as_the_same_records(tmp_path: Path) -> None:
    originals = {
        "train": list(islice(emoji_records("train"), 5)),
        "test": list(scene_records("test", seed=1, count=4)),
    }

    json_path = write_karpathy([*originals["test"], *originals["train"]], tmp_path / "corpus")

    for split, records in originals.items():
        read_back = list(read_karpathy(json_path, tmp_path / "corpus" / "images", split))
        for read, original in zip(read_back, records, strict=True):
            assert_same(read, original)


def test_a_file_that_is_not_utf8_says_how_to_save_it(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    path.write_bytes('{"images": "é"}'.encode("latin-1"))

    with pytest.raises(CorpusMalformed, match=r"dataset\.json is not UTF-8 .* iconv -f latin1"):
        read_karpathy(path, tmp_path, "test")
