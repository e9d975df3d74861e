"""Computes what identifies the records that an evaluation searches."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from tandem.corpus.readable_records import picture_bytes
from tandem.lab.evaluation.gallery import Gallery


@dataclass(frozen=True, slots=True)
class GalleryDigest:
    sha256: str
    """Of ids and captions of all records in their order, and of the pictures that ask."""
    pictures: Mapping[str, bytes]
    """SHA-256 of each asking picture's file, by record id; empty if regions replace pictures."""


def gallery_digest(galleries: Iterable[Gallery], *, reads_pictures: bool = True) -> GalleryDigest:
    """Returns the digest of galleries; raises RecordUnreadable for a picture that is not there."""
    digest = sha256()
    pictures: dict[str, bytes] = {}
    for gallery in galleries:
        for number, (record, chosen) in enumerate(gallery.chosen):
            captions = [(each.language, each.text) for each in chosen]
            # As JSON, so that different captions cannot concatenate to the same text.
            digest.update(json.dumps([record.record_id, captions]).encode() + b"\n")
            if reads_pictures and gallery.asks(number):
                pictures[record.record_id] = sha256(picture_bytes(record)).digest()
                digest.update(pictures[record.record_id])
        digest.update(b"\n")
    return GalleryDigest(digest.hexdigest(), pictures)
