"""What tells one state of a corpus from another."""

import json
from collections.abc import Iterable
from hashlib import sha256

from tandem.corpus.records import Record
from tandem.model_io.readable_records import picture_bytes


def records_sha256(*parts: Iterable[Record], reads_pictures: bool = True) -> str:
    """Returns a digest of what a run learns of records, in their order, part by part.

    That is names, families, captions and, with `reads_pictures`, the pictures' files as they are
    read: it costs reading each once more. Raises RecordUnreadable for a picture that cannot be had.
    """
    digest = sha256()
    for part in parts:
        for record in part:
            captions = [(each.language, each.text) for each in record.captions]
            # As JSON: no other captions run together to the same letters.
            said = json.dumps([record.record_id, record.family, captions])
            picture = sha256(picture_bytes(record)).hexdigest() if reads_pictures else ""
            digest.update(f"{said} {picture}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
