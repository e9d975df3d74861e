"""Defines the options of `tandem neighbours build`, and chooses the records that it reads."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, ON_ERROR
from tandem.cli.options import MAX_SEED, checked
from tandem.corpus.readable_records import (
    OnError,
    RecordCheck,
    SkippedRecords,
    check_asking,
    readable_records,
)
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import Gallery, languages_of, make_gallery
from tandem.model_io.repository.precision import Precision


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """Names what is read of a corpus."""

    corpus: str
    split: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of the command."""

    file: Annotated[Path, typer.Argument(help="file to write, for example train.neighbours")]
    checkpoint: Annotated[Path | None, "folder of a checkpoint; by default the bundled one"] = None
    corpus: Annotated[str, typer.Option(help=CORPUS_HELP)] = "scenes"
    split: Annotated[str, "split of the corpus"] = "train"
    gallery_count: Annotated[
        int | None, typer.Option("--count", help="pictures; by default all", min=1)
    ] = None
    captions: Annotated[int, typer.Option(help="captions a picture", min=1)] = 1
    language: Annotated[str | None, "language of the captions; by default all in turns"] = None
    seed: Annotated[int, typer.Option(help="which scenes", min=0, max=MAX_SEED)] = 1
    k: Annotated[int, typer.Option(help="neighbours of each item, of either modality", min=1)] = 100
    rerank_k: Annotated[
        int,
        typer.Option(help="pool size that the cross-encoder scores; 0 for only the BE", min=0),
    ] = 0
    retriever: Annotated[Path | None, "another checkpoint, whose BE embeds"] = None
    precision: Annotated[Precision | None, "precision of the models; by default fp32"] = None
    address: Annotated[
        str | None,
        typer.Option(
            help="host:port of an orchestrator, whose model embeds instead of a checkpoint's",
            callback=checked,
        ),
    ] = None
    regions: Annotated[Path | None, "file that tandem regions writes, read instead of pixels"] = (
        None
    )
    on_error: ON_ERROR = OnError.STOP
    allow_trained: Annotated[bool, "also build lists of pictures that the model was trained on"] = (
        False
    )

    @property
    def part(self) -> CorpusPart:
        """What is read of the corpus."""
        return CorpusPart(self.corpus, self.split, self.seed)


def neighbour_gallery(
    records: Iterable[Record],
    language: str | None,
    caption_count: int,
    check: RecordCheck,
    skipped: SkippedRecords,
) -> Gallery:
    """Returns the records whose chosen captions pass the check, as one gallery.

    A record without a caption fails it. Raises ValueError where none is left, and for records
    without a shared language.
    """
    spoken = [
        each
        for each in records
        if language is None or any(caption.language == language for caption in each.captions)
    ]
    if not spoken:
        raise ValueError(f"no record has a caption{f' in {language!r}' if language else ''}")
    languages = [language] if language else languages_of(spoken)
    gallery = make_gallery(spoken, languages, caption_count)
    asking = partial(check_asking, check)
    readable = {
        number
        for number, (record, chosen) in enumerate(gallery.chosen)
        if any(readable_records([replace(record, captions=chosen)], asking, skipped))
    }
    if not readable:
        raise ValueError(f"no record is left; {'; '.join(skipped.lines())}")
    return gallery.only(readable)
