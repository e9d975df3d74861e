"""Writes records as a corpus in Karpathy's layout, for commands that take one."""

import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from tandem.corpus.records import Record

_SUFFIX_OF_START = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}


def write_karpathy(records: Iterable[Record], folder: Path) -> Path:
    """Writes `folder`/images and `folder`/dataset.json with our own keys; returns the JSON."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    numbers = count()
    images: list[dict[str, Any]] = []
    for imgid, record in enumerate(records):
        image_bytes = record.image.read()
        # Numbered, because a record_id may be longer than a file name or hold a slash.
        filename = f"{imgid:06d}{_SUFFIX_OF_START[image_bytes[:2]]}"
        (folder / "images" / filename).write_bytes(image_bytes)
        sentences = [
            {
                "raw": caption.text,
                "tokens": caption.text.lower().split(),
                "imgid": imgid,
                "sentid": next(numbers),
                "caption_id": caption.caption_id,
                "language": caption.language,
            }
            for caption in record.captions
        ]
        images.append(
            {
                "filename": filename,
                "imgid": imgid,
                "split": record.split,
                "record_id": record.record_id,
                "family": record.family,
                "attributes": dict(record.attributes),
                "sentids": [each["sentid"] for each in sentences],
                "sentences": sentences,
            }
        )
    json_path = folder / "dataset.json"
    text = json.dumps({"dataset": folder.name, "images": images}, ensure_ascii=False)
    json_path.write_text(text, encoding="utf-8")
    return json_path
