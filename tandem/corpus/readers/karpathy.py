"""Reads the layout of Karpathy's dataset_flickr30k.json and dataset_coco.json.

    {"dataset": str, "images": [{"filename", "filepath"?, "imgid", "split", "sentids",
                                 "sentences": [{"raw", "tokens", "imgid", "sentid"}]}]}

What the layout has no key for goes into keys of our own, which other readers ignore:
`record_id`, `family` and `attributes` of an image, `caption_id` and `language` (also `lang`) of a
sentence.
"""

import json
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from tandem.contract.filtering.attributes import Attributes, check_attributes
from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.caption_text import language_field
from tandem.corpus.readers.image_sources import ImageFile, image_file
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.splits import split_named
from tandem.corpus.records import Caption, Record
from tandem.errors import AttributeInvalid

IMAGES_FOLDER = "images"

T = TypeVar("T")


def read_karpathy(
    json_path: Path,
    image_root: Path,
    split: str,
    restval_in_train: bool = True,
    left_out: LeftOut | None = None,
) -> RecordStream:
    """Returns the records of a split in the file's order, captions in the order of `sentids`.

    A record's id is its picture's file name without the suffix, a caption's the record's and its
    sentid: "36979#4". A sentid by itself may be another picture's name, as it is in Flickr30k.

    COCO's `restval` images are training data: unless `restval_in_train` is false, split "train"
    includes them, and calls them "train".

    The JSON is read at the call, which raises CorpusFileMissing, CorpusMalformed, or SplitUnknown
    for a split without images. An entry is checked when its record is read. A missing picture is
    found when it is read, so that it does not affect other records.
    """
    left_out = LeftOut() if left_out is None else left_out
    images = _read_images(json_path, left_out)
    known = {image["split"] for _, image in images}
    if split == "train" and restval_in_train and known >= {"restval"}:
        splits = {split, "restval"}
    else:
        splits = {split_named(split, known, json_path, left_out)}
    chosen = [(place, image) for place, image in images if image["split"] in splits]
    # The caller may choose another folder; otherwise pictures must stay in the JSON's folder.
    beside = json_path.parent
    walls = beside if image_root.is_relative_to(beside) else image_root
    image_of = partial(image_file, image_root, walls=walls)
    records = _records(chosen, image_of, split, left_out)
    return RecordStream(records, json_path, left_out, total=len(chosen))


def _records(
    images: list[tuple[str, dict[str, Any]]],
    image_of: Callable[[str, str], ImageFile],
    split: str,
    left_out: LeftOut,
) -> Iterator[Record]:
    for place, image in images:
        try:
            folder = _field(image, "filepath", str, place) if "filepath" in image else ""
            name = PurePosixPath(folder) / _field(image, "filename", str, place)
            source = image_of(str(name), place)
            record_id = str(image.get("record_id", unicodedata.normalize("NFC", source.path.stem)))
            captions = tuple(_captions(image, record_id, place))
            family = str(image.get("family", record_id))
            record = Record(record_id, captions, split, family, source, _attributes(image, place))
        except CorpusMalformed as error:
            left_out.refuse(error)
        else:
            yield record


def _read_images(json_path: Path, left_out: LeftOut) -> list[tuple[str, dict[str, Any]]]:
    """Returns each image with its position in the file, for messages."""
    try:
        with open_plain_file(json_path) as file:
            document = json.load(file)
    except UnicodeDecodeError as error:
        raise CorpusMalformed(
            f"{json_path} is not UTF-8 ({error.reason}); save it as UTF-8, for example with: "
            "iconv -f latin1 -t utf-8"
        ) from error
    except json.JSONDecodeError as error:
        raise CorpusMalformed(f"{json_path} is not JSON ({error}); fetch it again") from error
    images = document.get("images") if isinstance(document, dict) else None
    if not isinstance(images, list):
        raise CorpusMalformed(f'{json_path} has no list "images"; is it a Karpathy split file?')
    named = []
    for number, image in enumerate(images):
        place = f"{json_path}: images[{number}]"
        try:
            _field(image, "split", str, place)
        except CorpusMalformed as error:
            left_out.refuse(error)
        else:
            named.append((place, image))
    return named


def _attributes(image: dict[str, Any], place: str) -> Attributes:
    if "attributes" not in image:
        return {}
    written: dict[str, Any] = _field(image, "attributes", dict, place)
    # JSON has lists where attributes have tuples.
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in written.items()
    }
    for name, value in attributes.items():
        parts = value if isinstance(value, tuple) else (str(value),)
        if not isinstance(value, str | int | float | tuple) or not all(
            isinstance(part, str) for part in parts
        ):
            raise CorpusMalformed(
                f"{place}: the attribute {name!r} is not a text, number, flag or list of texts"
            )
    try:
        check_attributes(attributes)
    except AttributeInvalid as error:
        raise CorpusMalformed(f"{place}: {error.message}") from error
    return attributes


def _captions(image: dict[str, Any], record_id: str, place: str) -> list[Caption]:
    sentences: list[dict[str, Any]] = _field(image, "sentences", list, place)
    by_sentid = {
        _field(sentence, "sentid", int, f"{place}.sentences[{number}]"): sentence
        for number, sentence in enumerate(sentences)
    }
    sentids: list[Any] = _field(image, "sentids", list, place)
    if sorted(map(str, sentids)) != sorted(map(str, by_sentid)) or len(by_sentid) != len(sentences):
        raise CorpusMalformed(
            f"{place}: sentids and sentences name different captions; fetch the file again"
        )
    return [
        _caption(by_sentid[sentid], f"{record_id}#{sentid}", f"{place}, sentence {sentid}")
        for sentid in sentids
    ]


def _caption(sentence: dict[str, Any], default_id: str, place: str) -> Caption:
    text: str = _field(sentence, "raw", str, place)
    caption_id = str(sentence.get("caption_id", default_id))
    return Caption(caption_id, text, language_field(sentence, place) or "en")


def _field(owner: object, name: str, kind: type[T], place: str) -> T:
    value = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(value, kind):
        raise CorpusMalformed(
            f"{place} has no {kind.__name__} {name!r}; is this a Karpathy split file?"
        )
    return value
