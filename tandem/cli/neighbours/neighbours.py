"""`tandem neighbours`: makes the lists that reranking by neighbours learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, ON_ERROR, open_corpus
from tandem.cli.neighbours.neighbour_corpora import NeighbourBuild
from tandem.cli.neighbours.neighbour_gallery import CorpusPart
from tandem.cli.neighbours.served_neighbours import ServedNeighbourBuild
from tandem.cli.options import MAX_SEED, checked_if_given, with_options
from tandem.cli.terminal.console import errors, out
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.lab.neighbours.lists.neighbour_file import check_replaceable, save_neighbours
from tandem.model_io.repository.precision import Precision


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
            callback=checked_if_given,
        ),
    ] = None
    regions: Annotated[Path | None, "file that tandem regions writes, read instead of pixels"] = (
        None
    )
    on_error: ON_ERROR = OnError.STOP
    allow_trained: Annotated[bool, "also build lists of pictures that the model was trained on"] = (
        False
    )


@with_options
def build(asked: BuildOptions) -> None:
    """Write the nearest of each picture and caption.

    Embeds a split; the nearest are of both modalities. With --rerank-k the file also has the match
    logits of each query's first items. Pictures that the model was trained on are refused: its
    similarities of them are better than of others.
    """
    of_here = (asked.checkpoint, asked.retriever, asked.precision, asked.rerank_k, asked.regions)
    if asked.address and any(of_here):
        raise typer.BadParameter(
            "--address takes the embeddings of the model there: leave out --checkpoint, "
            "--retriever, --precision, --rerank-k and --regions"
        )
    if asked.file.is_dir():
        raise ValueError(
            f"{asked.file} is a folder; name a file in it, such as {asked.file / 'neighbours'}"
        )
    check_replaceable(asked.file)
    skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
    part = CorpusPart(asked.corpus, asked.split, asked.seed)
    trained: Sequence[str] = ()
    records = open_corpus(asked.corpus, asked.split, asked.seed, asked.gallery_count, skipped)
    if asked.address:
        served = ServedNeighbourBuild(asked.address, asked.k, skipped)
        near = served.neighbours(served.gallery(records, asked.language, asked.captions), part)
    else:
        chosen = asked.precision or Precision.FP32
        offline = NeighbourBuild(
            asked.checkpoint,
            asked.retriever,
            chosen,
            asked.k,
            asked.rerank_k,
            skipped,
            regions=asked.regions,
        )
        gallery = offline.gallery(records, asked.language, asked.captions)
        trained = offline.trained_names(gallery, part, allows_trained=asked.allow_trained)
        near = offline.neighbours(gallery, part)
    made = save_neighbours(asked.file, near)
    for line in skipped.report():
        errors.print(line)
    out.print(
        f"{asked.file}: {made.image_count:,} images and {made.text_count:,} texts with {made.k} "
        f"neighbours each, {made.base} of {made.model_fingerprint[:12]}"
    )
    if trained:
        errors.print(f"{len(trained):,} of the images were trained on, {trained[0]} first")
