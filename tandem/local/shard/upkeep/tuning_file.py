"""Stores operators' tunings in the shard's folder."""

import errno
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tandem.contract.content import Modality
from tandem.errors import ServiceUnavailable, StoreFull
from tandem.local.item_store.refused import StoreRefused
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.platform.files.private_files import PRIVATE_FILE
from tandem.platform.files.whole_file import write_text_whole


class TuningFile:
    """Reads and writes the tuning of each index and modality, with a default."""

    def __init__(self, path: Path, default: IndexTuning) -> None:
        """Reads the file if it exists; raises StoreRefused if it is not a tuning file."""
        self._path = path
        self._default = default
        self._tunings: dict[str, IndexTuning] = {}
        self._writing = threading.Lock()
        if path.exists():
            try:
                stored: Mapping[str, dict[str, Any]] = json.loads(path.read_bytes())
                self._tunings = {key: _tuning(value) for key, value in stored.items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise StoreRefused(
                    f"{path} is not a tuning file: {error}; remove it, and tune again"
                ) from error

    def get(self, index_id: str, modality: Modality) -> IndexTuning:
        return self._tunings.get(_key(index_id, modality), self._default)

    def put(self, index_id: str, modality: Modality, tuning: IndexTuning) -> None:
        """Raises StoreFull, or ServiceUnavailable, where it cannot be stored, and keeps the old."""
        self._write(lambda tunings: {**tunings, _key(index_id, modality): tuning})

    def forget(self, index_id: str) -> None:
        keys = {_key(index_id, modality) for modality in Modality}
        if keys & set(self._tunings):
            self._write(lambda tunings: {k: v for k, v in tunings.items() if k not in keys})

    def _write(self, changed: Callable[[dict[str, IndexTuning]], dict[str, IndexTuning]]) -> None:
        with self._writing:
            tunings = changed(self._tunings)
            values = {key: asdict(value) for key, value in tunings.items()}
            try:
                write_text_whole(self._path, json.dumps(values, indent=1), PRIVATE_FILE)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise StoreFull(why=str(error)) from error
                raise ServiceUnavailable(
                    service="index", why=f"the tuning cannot be stored: {error}"
                ) from error
            self._tunings = tunings


def _tuning(value: dict[str, Any]) -> IndexTuning:
    """Raises TypeError and ValueError for what would fail each later rebuild."""
    tuning = IndexTuning(**value)
    numbers = [tuning.recall_target, tuning.memory_bytes, *tuning.parameters.values()]
    if not isinstance(tuning.index_type, str):
        raise TypeError(f"index_type is {tuning.index_type!r}, no text")
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError(f"one of {numbers} is no number")
    if not 0 < tuning.recall_target <= 1:
        raise ValueError(f"recall_target is {tuning.recall_target}, not in 0 to 1")
    return tuning


def _key(index_id: str, modality: Modality) -> str:
    return f"{index_id}/{modality.value}"
