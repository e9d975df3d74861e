"""`tandem replay`: searches again as a file says, and compares the answers."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from google.protobuf import json_format

from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.client import Access, SearchResult
from tandem.client.calls.remote import Remote
from tandem.client.calls.retries import RetryPolicy
from tandem.contract.search.query import SearchQuery
from tandem.contract.search.query_wire import query_from_proto, query_to_proto
from tandem.errors import TandemError
from tandem.installation import __version__
from tandem.platform.files.json_object import FileInvalid, read_object
from tandem.platform.files.whole_file import write_text_whole
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.content_pb2 import Content

_TIMEOUT_SECONDS = 60.0
_SHOWN_COUNT = 10


class _Row(NamedTuple):
    item_id: str
    similarity: float
    match_logit: float | None


def write_bundle(
    path: Path, query: SearchQuery, result: SearchResult, *, contents_included: bool
) -> None:
    """Writes what repeats a search, readable for its owner alone; no contents of items.

    The query's own contents are left out too, unless `contents_included`; their digests are not.
    """
    request = query_to_proto(query)
    # They name changes of these shards' logs, which another machine does not have.
    del request.consistency_tokens[:]
    digests = [_digest(each) for each in _contents(request)]
    texts = [each.text for each in _contents(request)]
    if not contents_included:
        if any(part.HasField("encoding") for part in request.query_parts):
            raise typer.BadParameter("an encoding is repeated only with --bundle-contents")
        for each in _contents(request):
            each.Clear()
        if query.hybrid and query.hybrid.keywords in texts:  # As by default.
            request.hybrid.keywords = ""
        elif query.hybrid:
            raise typer.BadParameter("--keywords are repeated only with --bundle-contents")
    said = plain(result)
    kept = ("model_fingerprint", "model_version", "seconds", "coverage", "rerank")
    made = {
        "made_by": f"tandem {__version__}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "request": json_format.MessageToDict(request, preserving_proto_field_name=True),
        "content_digests": digests,
        "contents_included": contents_included,
        "items": _rows(result),
        **{name: said[name] for name in (*kept, "degradations", "retrievals")},
    }
    write_text_whole(path, json.dumps(made, indent=1) + "\n", mode=0o600)


@with_json
def replay(
    file: Annotated[
        Path, typer.Argument(help="what tandem search --bundle wrote", exists=True, dir_okay=False)
    ],
    content: Annotated[
        list[str] | None,
        typer.Option(help="text, or @FILE of a picture, that the file leaves out; may repeat"),
    ] = None,
    index: Annotated[str, typer.Option(help="another index, or generation, to search")] = "",
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Repeat a search that a file keeps, and compare.

    Shows both orders and times, and ends with status 1 unless the order is the same.
    """
    try:
        then = read_object(file)
        request = json_format.ParseDict(then["request"], pb.SearchItemsRequest())
        if not then["contents_included"]:
            _fill(request, content or [], then["content_digests"])
        request.index_id = index or request.index_id
        query = query_from_proto(request)
        before = [
            _Row(str(item_id), float(similarity), None if logit is None else float(logit))
            for item_id, similarity, logit in then["items"]
        ]
        fingerprint = str(then["model_fingerprint"])
        seconds = {name: float(each) for name, each in then["seconds"].items()}
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        json_format.ParseError,
        TandemError,
    ) as error:
        raise FileInvalid(f"{file} is no bundle of this release: {error!r}") from error
    remote = Remote(address, _TIMEOUT_SECONDS, Access.from_environment(), RetryPolicy())
    try:
        result = remote.search(query)
    finally:
        remote.close()
    after = _rows(result)
    is_same = [each.item_id for each in before] == [each.item_id for each in after]
    difference = _largest_difference(before, after)
    answer(
        {
            "is_same_order": is_same,
            "largest_score_difference": difference,
            "model_fingerprints": [fingerprint, result.model_fingerprint],
            "seconds": [seconds, result.seconds],
            "items": [before, after],
        }
    )
    _print_orders(before, after)
    _print_times(seconds, plain(result.seconds))
    if fingerprint != result.model_fingerprint:
        out.print(f"another model answers: {result.model_fingerprint}, not {fingerprint}")
    order = "the same order" if is_same else "another order"
    out.print(f"{order}; the scores of an item differ by at most {difference:.2g}")
    if not is_same:
        raise typer.Exit(1)


def _contents(request: pb.SearchItemsRequest) -> list[Content]:
    """Returns the contents that somebody searched with."""
    found = [part.content for part in request.query_parts if part.HasField("content")]
    return [request.query] if request.HasField("query") else found


def _digest(content: Content) -> str:
    return sha256(content.SerializeToString(deterministic=True)).hexdigest()


def _fill(request: pb.SearchItemsRequest, given: Sequence[str], digests: Sequence[str]) -> None:
    """Puts contents where the bundle left them out; raises BadParameter for others."""
    empty = _contents(request)
    if len(given) != len(empty):
        raise typer.BadParameter(
            f"the file leaves out {len(empty)} contents: give each by --content, in their order"
        )
    for place, content, digest in zip(empty, given, digests, strict=True):
        if content.startswith("@"):
            place.image = Path(content[1:]).read_bytes()
        else:
            place.text = content
        if _digest(place) != digest:
            raise typer.BadParameter(f"{content[:40]!a} is not what the file left out")


def _rows(result: SearchResult) -> list[_Row]:
    return [_Row(each.item_id, each.similarity, each.match_logit) for each in result.items]


def _largest_difference(before: Sequence[_Row], after: Sequence[_Row]) -> float:
    """Returns how far the scores of an item differ that both answers have."""
    found = {each.item_id: each for each in after}
    pairs = [(each, found[each.item_id]) for each in before if each.item_id in found]
    differences = [abs(then.similarity - now.similarity) for then, now in pairs]
    differences += [
        abs(then.match_logit - now.match_logit)
        for then, now in pairs
        if then.match_logit is not None and now.match_logit is not None
    ]
    return max(differences, default=0.0)


def _print_orders(before: Sequence[_Row], after: Sequence[_Row]) -> None:
    rows = [["rank", "then", "now"]]
    for rank, pair in enumerate(zip_longest(before, after), 1):
        if rank <= _SHOWN_COUNT or (pair[0] and pair[0][0]) != (pair[1] and pair[1][0]):
            rows.append([str(rank), *(each.item_id if each else "" for each in pair)])
    out.rows(rows, left=[1, 2])


def _print_times(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    rows = [["stage", "then ms", "now ms"]]
    for name, seconds in before.items():
        rows.append([name, f"{seconds * 1e3:.1f}", f"{after.get(name, 0.0) * 1e3:.1f}"])
    out.rows(rows, left=[0])
