"""Computes a digest of the records that a run reads."""

import json
from collections.abc import Callable, Iterable
from hashlib import sha256

from tandem.corpus.readable_records import picture_bytes
from tandem.corpus.records import Record

OnPicture = Callable[[bytes], object]
"""Is called with the SHA-256 of each picture's file, in the order of the records."""


def records_sha256(
    *parts: Iterable[Record],
    reads_pictures: bool = True,
    on_picture: OnPicture = lambda _: None,
) -> str:
    """Returns a digest of the records in their order, part by part.

    It covers ids, families, captions and, with `reads_pictures`, the bytes of the picture files,
    which are read again. Raises RecordUnreadable for a picture that is not available.
    """
    digest = sha256()
    for part in parts:
        for record in part:
            captions = [(each.language, each.text) for each in record.captions]
            # As JSON, so that different captions cannot concatenate to the same text.
            line = json.dumps([record.record_id, record.family, captions])
            picture = b""
            if reads_pictures:
                picture = sha256(picture_bytes(record)).digest()
                on_picture(picture)
            digest.update(f"{line} {picture.hex()}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
