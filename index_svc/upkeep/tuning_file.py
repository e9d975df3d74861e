"""Stores operators' tunings in the shard's folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from index_svc.retrieval.index_type import IndexTuning
from tandem.contract.content import Modality
from tandem.item_store.environment import replace_file
from tandem.item_store.refused import StoreRefused


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
                stored: Mapping[str, dict[str, object]] = json.loads(path.read_bytes())
                self._tunings = {key: IndexTuning(**value) for key, value in stored.items()}  # type: ignore[arg-type]
            except (ValueError, TypeError, AttributeError) as error:
                raise StoreRefused(
                    f"{path} is not a tuning file: {error}; remove it, and tune again"
                ) from error

    def get(self, index_id: str, modality: Modality) -> IndexTuning:
        return self._tunings.get(_key(index_id, modality), self._default)

    def put(self, index_id: str, modality: Modality, tuning: IndexTuning) -> None:
        self._write(lambda tunings: {**tunings, _key(index_id, modality): tuning})

    def forget(self, index_id: str) -> None:
        keys = {_key(index_id, modality) for modality in Modality}
        if keys & set(self._tunings):
            self._write(lambda tunings: {k: v for k, v in tunings.items() if k not in keys})

    def _write(self, changed: Callable[[dict[str, IndexTuning]], dict[str, IndexTuning]]) -> None:
        with self._writing:
            tunings = changed(self._tunings)
            values = {key: asdict(value) for key, value in tunings.items()}
            replace_file(self._path, json.dumps(values, indent=1))
            self._tunings = tunings


def _key(index_id: str, modality: Modality) -> str:
    return f"{index_id}/{modality.value}"
