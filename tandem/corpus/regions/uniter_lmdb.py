"""Reads UNITER's database of regions, which is VILLA's too.

    feat_th0.2_max100_min10[_compressed]/data.mdb   "<image id>.npz" to msgpack or npz; "__keys__"
    feat_numbb36[_compressed]/data.mdb              the same, of 36 regions an image
    nbb_th0.2_max100_min10.json                     "<image id>.npz" to the regions that count

A value is the dict of arrays that region_archive.py describes, packed as msgpack-numpy packs it
or, compressed, as .npz. Needs the extra `regions`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import (
    CorpusMalformed,
    ExtraMissing,
    RegionsMissing,
    RegionsUnreadable,
)
from tandem.corpus.regions.region_archive import (
    RegionChoice,
    archived_arrays,
    archived_regions,
)
from tandem.corpus.regions.regions import RegionReader, Regions, json_of

try:
    import lmdb
    import msgpack
except ImportError as error:
    raise ExtraMissing(
        what="UNITER's databases are read with lmdb and msgpack", extra="regions"
    ) from error

DATA_NAME: Final = "data.mdb"
_KEYS: Final = b"__keys__"
_SUFFIX: Final = ".npz"
_ZIP_START: Final = b"PK"
_CHOICE = re.compile(r"feat_th(?P<least>[\d.]+)_max(?P<most>\d+)_min(?P<fewest>\d+)")

# Written without a threshold: all regions of an image count, whatever their confidences.
_FIXED_COUNT = re.compile(r"feat_numbb(?P<count>\d{1,6})(?!\d)")


class UniterLmdb(RegionReader):
    """Reads regions from a folder with UNITER's data.mdb."""

    def __init__(self, folder: Path) -> None:
        """Reads the ids; raises CorpusMalformed for a database that is not UNITER's."""
        super().__init__(folder)
        self._choice = _choice_of(folder.name)
        self._counts = _counts_beside(folder)
        try:
            self._environment = lmdb.open(
                str(folder), readonly=True, lock=False, create=False, max_readers=1
            )
            _check_whole(folder / DATA_NAME, self._environment)
            with self._environment.begin() as transaction:
                listed = transaction.get(_KEYS)
        except lmdb.Error as error:
            raise CorpusMalformed(f"{folder} is not an LMDB ({error}); copy it again") from error
        try:
            names: list[str] = json.loads(listed or b"")
        except ValueError as error:
            raise CorpusMalformed(
                f"{folder} has no list of its images under {_KEYS.decode()}; it is not UNITER's"
            ) from error
        self._found = dict.fromkeys(name.removesuffix(_SUFFIX) for name in names)

    def _read(self, image_id: str, place: str) -> Regions:
        name = image_id + _SUFFIX
        try:
            with self._environment.begin() as transaction:
                value = transaction.get(name.encode("utf-8", "replace"))
        except lmdb.Error as error:
            raise RegionsUnreadable(f"{place} cannot be read ({error}); copy it again") from error
        if value is None:
            raise RegionsMissing(place=self._path, image_id=image_id)
        is_compressed = value[:2] == _ZIP_START
        arrays = archived_arrays(place, value) if is_compressed else unpacked_arrays(place, value)
        count = self._counts.get(name)
        return archived_regions(place, arrays, self._choice, count, self.feature_width)


def unpacked_arrays(place: str, value: bytes) -> dict[str, NDArray[Any]]:
    """Returns the dict of arrays that msgpack-numpy packed; raises RegionsUnreadable."""
    try:
        arrays = msgpack.unpackb(value, raw=False, strict_map_key=False, object_hook=_array)
    except (ValueError, msgpack.UnpackException) as error:
        raise RegionsUnreadable(
            f"{place} is not a whole msgpack of arrays ({error}); copy the database again"
        ) from error
    return {str(name): array for name, array in arrays.items() if isinstance(array, np.ndarray)}


def _array(packed: dict[Any, Any]) -> object:
    """Returns the array that a map of msgpack-numpy describes, or the map itself."""
    fields = {_text(key): value for key, value in packed.items()}
    if fields.get("nd") is not True:
        return packed
    dtype = np.dtype(_text(fields["type"]))
    return np.frombuffer(fields["data"], dtype).reshape(tuple(fields["shape"]))


def _text(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _check_whole(path: Path, environment: lmdb.Environment) -> None:
    """Refuses a file without all its pages: to read one behind the end would end this process."""
    # A database has two pages of its own, whatever they say.
    page_count = max(2, environment.info()["last_pgno"] + 1)
    wanted = page_count * environment.stat()["psize"]
    if (size_bytes := path.stat().st_size) < wanted:
        raise CorpusMalformed(
            f"{path} has {size_bytes:,} bytes instead of {wanted:,}; it is cut short: copy it again"
        )


def _choice_of(name: str) -> RegionChoice:
    if fixed := _FIXED_COUNT.match(name):
        return RegionChoice(0.0, int(fixed["count"]), int(fixed["count"]))
    match = _CHOICE.match(name)
    if match is None:
        return RegionChoice()
    return RegionChoice(float(match["least"]), int(match["fewest"]), int(match["most"]))


def _counts_beside(folder: Path) -> Mapping[str, int]:
    """Returns the counts of the side file that belongs to a folder; none without it."""
    match = _CHOICE.match(folder.name)
    path = folder.parent / f"nbb{match[0].removeprefix('feat')}.json" if match else None
    if path is None or not path.exists():
        return {}
    return json_of(path)
