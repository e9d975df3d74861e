"""Defines the options of `tandem evaluate`, and refuses those that would be ignored."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Final

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, ON_ERROR
from tandem.cli.ingest.source_job import LongTexts
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.contract.content import TruncationPolicy
from tandem.corpus.readable_records import OnError
from tandem.lab.evaluation.served import POOL_K
from tandem.model_io.repository.precision import Precision

_OF_A_GALLERY: Final = (
    *("corpus", "split", "gallery_count", "captions", "language", "fold_count", "distractors"),
    *("any_match", "query_count", "seed", "checkpoint", "regions", "on_error"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The options of the command."""

    corpus: Annotated[str, typer.Argument(help=CORPUS_HELP)] = "scenes"
    split: Annotated[str, "split of the corpus"] = "test"
    gallery_count: Annotated[
        int,
        typer.Option("--count", help="images in the gallery; for scenes a multiple of 4", min=1),
    ] = 1_000
    captions: Annotated[int, typer.Option(help="captions a picture", min=1)] = 1
    language: Annotated[str | None, "language of the queries; by default all in turns"] = None
    fold_count: Annotated[
        int, typer.Option("--folds", help="number of galleries to split the images into", min=1)
    ] = 1
    distractors: Annotated[
        list[str] | None, "CORPUS:SPLIT:COUNT of distractors, which never are queries; may repeat"
    ] = None
    any_match: Annotated[bool, "whether all items with an equal caption count as right"] = False
    query_count: Annotated[
        int | None,
        typer.Option(help="queries in each direction; by default the whole gallery", min=1),
    ] = None
    seed: Annotated[int, "which scenes"] = 1
    k: Annotated[
        list[int] | None,
        typer.Option("--rerank-k", min=0, help="pool sizes to rerank, 0 for none; may repeat"),
    ] = None
    adaptive_depth: Annotated[
        bool, "stop reranking, before --rerank-k, once the top result is unlikely to change"
    ] = False
    concurrency: Annotated[int, typer.Option(help="searches at once", min=1)] = 8
    address: ADDRESS = DEFAULT_ADDRESS
    queries: Annotated[
        Path | None,
        typer.Option(help="judged queries, a folder or a .jsonl file, which --index is asked"),
    ] = None
    index: Annotated[str | None, "with --queries: the index id to measure, as it stands"] = None
    gate: Annotated[
        Path | None, "a report.json of the same queries; worse figures end with status 3"
    ] = None
    checkpoint: Annotated[Path | None, "measure this checkpoint without a server"] = None
    retriever: Annotated[
        Path | None, "with --checkpoint: another checkpoint whose BE retrieves"
    ] = None
    precision: Annotated[Precision | None, "with --checkpoint: the precision; by default fp32"] = (
        None
    )
    fusion: Annotated[
        int | None,
        typer.Option("--fusion-k", min=1, help="with --checkpoint: pool size for score fusion"),
    ] = None
    on_error: ON_ERROR = OnError.STOP
    long_texts: Annotated[
        LongTexts,
        typer.Option(
            "--truncation-policy",
            help="what to do with a caption over the model's token limit: refuse it, or truncate "
            "it as papers that measure CLIP do",
        ),
    ] = LongTexts.ERROR
    regions: Annotated[
        Path | None,
        "a detector's files, whose regions are sent instead of images; with --checkpoint "
        "the file that tandem regions writes",
    ] = None
    allow_trained: Annotated[
        bool,
        "with --checkpoint: also measure on pictures that it was trained on, or that "
        "--neighbours were",
    ] = False
    neighbours: Annotated[
        list[str] | None,
        "with --checkpoint: also reorder by a folder of tandem train neighbours, or by a "
        "method without labels, such as krnn; may repeat",
    ] = None
    neighbours_dev: Annotated[
        Path | None, "with --neighbours: lists of dev, on which settings are chosen"
    ] = None
    report: Annotated[Path | None, "folder for report.json, report.md and a plot"] = None

    def __post_init__(self) -> None:
        """Raises BadParameter for an option that would be ignored."""
        if (self.queries is None) != (self.index is None):
            raise typer.BadParameter("--queries and --index need each other")
        of_a_gallery = [each for each in fields(self) if each.name in _OF_A_GALLERY]
        if self.queries and any(getattr(self, each.name) != each.default for each in of_a_gallery):
            raise typer.BadParameter(
                "--queries asks a served index as it stands: leave out what describes a gallery or "
                "a checkpoint"
            )
        if self.checkpoint is None:
            of_a_checkpoint = {
                "--retriever": self.retriever,
                "--precision": self.precision,
                "--fusion-k": self.fusion,
                "--allow-trained": self.allow_trained,
                "--neighbours": self.neighbours,
            }
            if given := [option for option, value in of_a_checkpoint.items() if value]:
                raise typer.BadParameter(
                    f"{', '.join(given)}: these need --checkpoint; a server has its own model"
                )
        elif self.query_count is not None:
            raise typer.BadParameter("--checkpoint asks with the whole gallery: take --count")
        elif self.adaptive_depth:
            raise typer.BadParameter(
                "--adaptive-depth is asked of a server; of a checkpoint it is fitted and measured "
                "by tandem models calibrate"
            )
        if self.neighbours_dev is not None and not self.neighbours:
            raise typer.BadParameter("--neighbours-dev chooses settings of --neighbours: give one")
        if self.neighbours and self.distractors:
            raise typer.BadParameter(
                "--neighbours reads all queries, and --distractors ask nothing"
            )

    @property
    def pool_sizes(self) -> list[int]:
        """The pool sizes to rerank, each once, the smallest first."""
        return sorted(set(self.k or [POOL_K]))

    @property
    def truncation_policy(self) -> TruncationPolicy:
        """The policy for captions over the model's limit."""
        return TruncationPolicy(self.long_texts.value)
