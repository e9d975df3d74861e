"""Opens a detector's file of any layout, also those that only torch reads.

{split}_img_frcnn_feats.pt   OSCAR's: a dict of image ids to float32 [n, 2054]
*.safetensors                our own, as `write_regions` writes it
"""

from pathlib import Path
from typing import Any, Final

from torch import Tensor

from tandem.corpus.errors import CorpusMalformed, RegionsUnreadable
from tandem.corpus.left_out import LeftOut
from tandem.corpus.regions.region_layouts import open_regions
from tandem.corpus.regions.regions import RegionReader, Regions, split_vectors
from tandem.modeling.image_sources.region_tokens import RegionFile, RegionFileInvalid
from tandem.modeling.published.pickled_tensors import (
    PickleRefused,
    is_plain,
    read_pickled_tensors,
)

_TORCH_SUFFIXES: Final = (".pt", ".pth")


class OscarPickle(RegionReader):
    """Reads regions from OSCAR's file, all of which stays in memory: COCO's test split is 1 GB."""

    def __init__(self, path: Path) -> None:
        """Raises CorpusMalformed for a file of other things than tensors by image id."""
        super().__init__(path)
        try:
            stored: Any = read_pickled_tensors(path)
        except PickleRefused as error:
            raise CorpusMalformed(f"{error}; copy it again") from error
        if not isinstance(stored, dict) or not all(
            isinstance(image_id, (int, str)) and isinstance(vectors, Tensor)
            for image_id, vectors in stored.items()
        ):
            raise CorpusMalformed(
                f"{path} is not a dict of image ids to tensors, as OSCAR's files are"
            )
        self._found = {str(key): each for key, each in stored.items()}

    def _read(self, image_id: str, place: str) -> Regions:
        vectors = self._found[image_id].detach()
        if not is_plain(vectors) or vectors.is_complex():
            raise RegionsUnreadable(
                f"{place} is not a plain tensor of real numbers; save it again as one"
            )
        return split_vectors(place, vectors.float().numpy(), self.feature_width)


class StoredRegions(RegionReader):
    """Reads regions from the file that training and evaluation read."""

    def __init__(self, path: Path) -> None:
        """Raises RegionFileInvalid naming a file that is not one of regions."""
        super().__init__(path)
        self._file = RegionFile(path)
        self._found = dict.fromkeys(self._file.record_ids())

    def _read(self, image_id: str, place: str) -> Regions:
        try:
            vectors = self._file.vectors(image_id).float().numpy()
        except RegionFileInvalid as error:
            raise RegionsUnreadable(str(error)) from error
        return split_vectors(place, vectors, self.feature_width)


def open_region_source(path: Path, left_out: LeftOut | None = None) -> RegionReader:
    """Returns the reader of any layout; errors as `open_regions`."""
    if path.suffix in _TORCH_SUFFIXES:
        return OscarPickle(path)
    if path.suffix == ".safetensors":
        return StoredRegions(path)
    return open_regions(path, left_out)
