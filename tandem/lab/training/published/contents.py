"""Reads records as a published model's family does: captions, pictures, a detector's regions.

Shapes: B rows, H W pixels, R regions, D numbers of a region.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tandem.corpus.readable_records import (
    RecordFault,
    RecordUnreadable,
    check_captions,
    picture_pixels,
)
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.errors import RegionsInvalid
from tandem.model_io.pictures.image_rules import ImageRules, RegionRules
from tandem.model_io.pictures.region_vectors import content_vectors
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.image_sources.region_sources import open_region_source

PictureRules = ImageRules | RegionRules


class PublishedContents:
    """Checks records, and gives what the model reads of their pictures."""

    def __init__(self, rules: PictureRules, texts: TextPreprocessor, regions: Path | None) -> None:
        """Raises ValueError unless `regions`, a detector's file, are given to a model of them."""
        if isinstance(rules, RegionRules) and regions is None:
            raise ValueError(f"the model reads {rules} of a detector; give them with --regions")
        if isinstance(rules, ImageRules) and regions is not None:
            raise ValueError(f"--regions {regions} would be ignored: the model reads pixels")
        self.texts, self._rules = texts, rules
        self._regions = None if regions is None else RecordRegions(open_region_source(regions))

    def __call__(self, record: Record) -> None:
        """Raises RecordUnreadable for a caption, a picture or regions that it cannot read."""
        check_captions(record, self.texts)
        self.of(record)

    def of(self, record: Record) -> NDArray[Any]:
        """Returns uint8 [H, W, 3], or the regions' vectors, float16 [n, D]."""
        if isinstance(self._rules, ImageRules):
            return picture_pixels(record, self._rules)
        assert self._regions is not None, "a model of regions is refused without them"
        try:
            return content_vectors(self._regions.content(record), self._rules)
        except RegionsInvalid as error:
            raise RecordUnreadable(record, RecordFault.REGIONS_UNREADABLE, error.message) from error


class ContentImages:
    """Reads the contents of records on demand, since the pictures of COCO take 50 GB as pixels."""

    def __init__(self, contents: PublishedContents, records: Sequence[Record]) -> None:
        """`records` are the pictures, in the order of their numbers."""
        self._contents, self._records = contents, records
        self._threads = ThreadPoolExecutor()

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns uint8 [B, H, W, 3] or float16 [B, R, D], and the mask of rows, int64 [B, R]."""
        records = [self._records[number] for number in numbers]
        contents = list(self._threads.map(self._contents.of, records))
        most = max(map(len, contents))
        made = np.zeros((len(contents), most, *contents[0].shape[1:]), contents[0].dtype)
        mask = np.zeros((len(contents), most), np.int64)
        for row, content in enumerate(contents):
            made[row, : len(content)] = content
            mask[row, : len(content)] = 1
        return torch.from_numpy(made), torch.from_numpy(mask)

    def tokens(self, *_: object) -> Self:
        """Returns itself: the model reads the contents themselves."""
        return self
