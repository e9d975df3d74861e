"""Reads a folder with one archive of arrays an image, named by the image's id."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing, RegionsMissing
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.plain_file import list_folder, open_plain_file
from tandem.corpus.regions.region_archive import archived_arrays, archived_regions
from tandem.corpus.regions.regions import FEATURE_WIDTH, Regions

SUFFIX: Final = ".npz"


class NpzFolder:
    """Reads regions from a folder's archives."""

    def __init__(
        self, folder: Path, left_out: LeftOut | None = None, feature_width: int = FEATURE_WIDTH
    ) -> None:
        """Counts other files in `left_out`; raises CorpusFileMissing for a folder without any."""
        left_out = LeftOut() if left_out is None else left_out
        self._folder, self._feature_width = folder, feature_width
        self._files: dict[str, Path] = {}
        for path in list_folder(folder, folder, left_out)[0]:
            if path.suffix == SUFFIX:
                self._files[path.stem] = path
            else:
                left_out.pass_over(path)
        if not self._files:
            raise CorpusFileMissing(f"no {SUFFIX} file in {folder}; give a detector's output")

    def image_ids(self) -> Iterator[str]:
        """Yields the files' names without their extension, sorted."""
        yield from self._files

    def read(self, image_id: str) -> Regions:
        """Returns an image's regions; errors as `RegionReader.read`."""
        if image_id not in self._files:
            raise RegionsMissing(place=self._folder, image_id=image_id)
        path = self._files[image_id]
        with open_plain_file(path, self._folder) as file:
            arrays = archived_arrays(str(path), file.read())
        return archived_regions(str(path), arrays, feature_width=self._feature_width)
