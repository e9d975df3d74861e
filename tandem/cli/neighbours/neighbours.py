"""`tandem neighbours`: makes the lists that reranking by neighbours learns from."""

from collections.abc import Sequence

import typer

from tandem.cli.corpora.corpora import open_corpus
from tandem.cli.neighbours.neighbour_corpora import NeighbourBuild
from tandem.cli.neighbours.neighbour_gallery import BuildOptions
from tandem.cli.neighbours.served_neighbours import ServedNeighbourBuild
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors, out
from tandem.corpus.readable_records import OnError, SkippedRecords
from tandem.lab.neighbours.lists.neighbour_file import check_replaceable, save_neighbours


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
    trained: Sequence[str] = ()
    records = open_corpus(asked.corpus, asked.split, asked.seed, asked.gallery_count, skipped)
    if asked.address:
        served = ServedNeighbourBuild(asked, skipped)
        near = served.neighbours(served.gallery(records))
    else:
        offline = NeighbourBuild(asked, skipped)
        gallery = offline.gallery(records)
        trained = offline.trained_names(gallery)
        near = offline.neighbours(gallery)
    made = save_neighbours(asked.file, near)
    for line in skipped.report():
        errors.print(line)
    out.print(
        f"{asked.file}: {made.image_count:,} images and {made.text_count:,} texts with {made.k} "
        f"neighbours each, {made.base} of {made.model_fingerprint[:12]}"
    )
    if trained:
        errors.print(f"{len(trained):,} of the images were trained on, {trained[0]} first")
