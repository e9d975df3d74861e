"""`tandem golden start`: pools what several systems answer, to be judged."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, open_corpus
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.smaller_jpeg import sendable_picture
from tandem.cli.terminal.console import out
from tandem.cli.terminal.progress import LongWork
from tandem.client import Access, Client, StoredItem
from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery, read_judged_queries
from tandem.corpus.readers.caption_text import decoded, numbered_lines
from tandem.errors import TandemError
from tandem.installation import __version__
from tandem.lab.evaluation.golden_set import write_golden_set

FOLDER = Annotated[Path, typer.Argument(help="folder of the golden set")]
# Of each system; it says how far down the match of another system is.
_LIST_K: Final = 100
_SYSTEM: Final = re.compile(r"(?:([^:]+):)?(be|ce|hybrid)")


def start(
    folder: FOLDER,
    index: Annotated[str, "index to search"] = "scenes",
    queries: Annotated[
        Path | None, "file with one query a line, or judged queries (.jsonl or a folder)"
    ] = None,
    captions: Annotated[str | None, f"take captions of a corpus as queries: {CORPUS_HELP}"] = None,
    split: Annotated[str, "split of the corpus"] = "test",
    count: Annotated[
        int | None, typer.Option(help="queries to draw at random; by default all", min=1)
    ] = None,
    system: Annotated[
        list[str] | None,
        "be, ce or hybrid, also of another index: photos@2:ce; repeat it; the first is what the "
        "others are compared with; by default be and ce",
    ] = None,
    depth: Annotated[int, typer.Option(help="items of each system to judge", min=1)] = 10,
    differing: Annotated[
        int | None,
        typer.Option(
            help="judge only so many of the queries at which the systems' first items differ, "
            "drawn at random: to compare these systems alone",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, "of every random order"] = 1,
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Pool what systems answer, for people to judge."""
    systems = {name: _SYSTEM.fullmatch(name) for name in system or ("be", "ce")}
    if len(systems) < 2 or None in systems.values():
        raise typer.BadParameter("--system is be, ce or hybrid, or INDEX:ce; give two or more")
    if folder.exists():
        raise ValueError(f"{folder} exists and stays as it is; choose another folder")
    asked = [*_queries(queries, captions, split)]
    asked = random.Random(seed).sample(asked, min(count or len(asked), len(asked)))
    if not asked:
        raise ValueError(f"{queries or captions} has no queries; write one a line")
    runs, fingerprints = {}, {}
    access = Access.from_environment()
    with (
        # Elsewhere first, so that a full disk or a kill leaves no half of a golden set.
        TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}.") as fresh,
        LongWork(often_short=True) as work,
        Client(address, access=access) as client,
    ):
        for name, found in systems.items():
            own_index, order = found.groups() if found else ("", "")
            show = partial(work.show, name, total=len(asked), unit="queries")
            runs[name], fingerprints[name] = answers(client, own_index or index, order, asked, show)
        about = {
            "made_by": f"tandem golden start, {__version__}",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "index_id": index,
            "model_fingerprints": fingerprints,
        }
        made = Path(fresh, "made")
        counts = write_golden_set(made, asked, runs, depth, seed, about, differing)
        made.rename(folder)
    out.print(
        f"{folder}: {len(asked):,} queries, {counts['differing_count']:,} with different first "
        f"items; {counts['pair_count']:,} pairs of {counts['drawn_count']:,} queries by "
        f"{', '.join(systems)}; judge them by tandem golden judge {folder}"
    )


def answers(
    client: Client,
    index_id: str,
    order: str,
    queries: Sequence[JudgedQuery],
    show: Callable[[int], None],
) -> tuple[dict[str, list[str]], str]:
    """Returns the ids that a system finds for each query, best first, and the last model.

    A query's own item is left out. Raises ValueError for a degraded answer, because the pool would
    be of another system.
    """
    found, fingerprint = {}, ""
    for number, query in enumerate(queries):
        show(number)
        content = query.sent()
        if isinstance(content, bytes):
            content = sendable_picture(content)
        try:
            result = client.search(
                content,
                index_id=index_id,
                target_modality=query.target,
                retrieve_k=_LIST_K,
                return_n=_LIST_K,
                full_coverage_required=True,
                rerank_disabled=order == "be",
                rerank_required=order == "ce",
                hybrid=order == "hybrid",
            )
        except TandemError as error:
            error.message = f"query {query.query_id}: {error.message}"
            raise
        if result.is_degraded:
            why = ", ".join(each.name for each in result.degradations)
            raise ValueError(f"{order} answered query {query.query_id} degraded: {why}")
        ids = [each.item_id for each in result.items if StoredItem(each.item_id) != content]
        found[query.query_id], fingerprint = ids, result.model_fingerprint
    return found, fingerprint


def _queries(path: Path | None, corpus: str | None, split: str) -> Iterator[JudgedQuery]:
    """Yields the queries of a file or a corpus; each different text, by its number."""
    if (path is None) == (corpus is None):
        raise typer.BadParameter("give either --queries FILE or --captions CORPUS")
    if path is not None and (path.is_dir() or path.suffix == ".jsonl"):
        yield from read_judged_queries(path)
        return
    if path is not None:
        texts = [decoded(line, f"{path}: line {n}") for n, line in numbered_lines(path)]
    else:
        records = open_corpus(corpus or "", split, 1, None)
        texts = [caption.text for record in records for caption in record.captions]
    numbers: dict[str, int] = {}
    for number, text in enumerate(texts, start=1):
        numbers.setdefault(text.strip(), number)
    for text, number in numbers.items():
        if text:
            yield JudgedQuery(f"q{number}", text, Modality.IMAGE, {})
