"""`tandem regions`: makes one file of a detector's files, which training and evaluation read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from tandem.cli.corpora.corpora import ON_ERROR
from tandem.cli.corpora.detector_files import open_detector_files
from tandem.cli.options import user_path
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.progress import LongWork
from tandem.contract.regions import MAX_REGION_COUNT
from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.corpus.regions.regions import RegionReader, read_regions
from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.model_io.pictures.region_vectors import region_vectors
from tandem.modeling.image_sources.region_tokens import write_region_file

_STAGE = "read the regions"


def regions(
    source: Annotated[Path, typer.Argument(help="file or folder of a detector")],
    target: Annotated[Path, typer.Argument(help="the file to write, *.safetensors")],
    region_count: Annotated[
        int, typer.Option("--region-count", help="regions an image", min=1, max=MAX_REGION_COUNT)
    ] = 50,
    on_error: ON_ERROR = OnError.STOP,
) -> None:
    """Write a detector's regions as one file.

    It is for --regions of tandem train and tandem evaluate.
    """
    skipped = SkippedRecords(goes_on=on_error is OnError.SKIP)
    target = user_path(str(target))
    if target.suffix != ".safetensors":
        raise ValueError(f"{target}: name it *.safetensors, by which it is known")
    reader = open_detector_files(source, skipped)
    image_ids = list(reader.image_ids())
    with LongWork() as work:
        work.show(_STAGE, 0, len(image_ids), unit="images")
        made = _vectors(reader, image_ids, region_count, skipped, work)
        written_count = write_region_file(target, made, image_ids, region_count)
    for line in skipped.report():
        errors.print(line)
    if not written_count:
        target.unlink()
        raise ValueError(f"{source}: no image was left to write")
    out.print(f"{target}: {written_count:,} images, {region_count} regions each at most")


def _vectors(
    reader: RegionReader,
    image_ids: list[str],
    region_count: int,
    skipped: SkippedRecords,
    work: LongWork,
) -> Iterator[tuple[str, NDArray[np.float16]]]:
    """Yields each image's vectors as OSCAR reads them, float16 [n, 2054]."""
    for number, (image_id, found) in enumerate(read_regions(reader, image_ids, skipped), 1):
        if found.boxes is None:
            raise RegionsUnreadable(f"image {image_id!r} has no boxes, which a model reads too")
        rules = RegionRules(
            feature_width=found.features.shape[1],
            box_numbers=BoxNumbers.CORNERS_SIDES,
            max_regions=region_count,
        )
        vectors = region_vectors(found.features, found.boxes, rules)
        work.show(_STAGE, number)
        yield image_id, vectors
