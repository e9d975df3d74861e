"""`tandem golden judge` and `status`: lets people judge a golden set, and says how far they are."""

from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from typing import Annotated

from tandem.cli.golden.judge_server import Content, JudgeServer
from tandem.cli.golden.start import FOLDER
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.terminal.console import out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.client import Access, Client, ImageContent, TextContent
from tandem.contract.search.query import StoredItem
from tandem.corpus.judged_queries import MANIFEST_NAME, read_judged_queries
from tandem.lab.evaluation.golden_set import POOL_NAME, RUNS_NAME, Judgements
from tandem.lab.evaluation.golden_standing import R_AT_1, standings
from tandem.platform.files.json_object import read_object

# Looked up before judging, to notice another index.
_CHECKED_COUNT = 100


def judge(
    folder: FOLDER,
    port: Annotated[int, "port on 127.0.0.1; by default a free one"] = 0,
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Judge a golden set in a browser, until Ctrl-C.

    Each judgement is on disk before the next pair is shown; the same command continues.
    """
    pool = read_object(folder / POOL_NAME)
    judgements = Judgements(folder)
    queries = {each.query_id: each for each in read_judged_queries(folder)}
    index_id = read_object(folder / MANIFEST_NAME)["index_id"]

    @lru_cache(maxsize=32)
    def item(item_id: str) -> Content:
        found = client.fetch_items([item_id], index_id=index_id)
        match found and found[0].content:
            case TextContent(text):
                return text
            case ImageContent(image_bytes):
                return image_bytes
        return "regions of a detector, without their picture" if found else None

    def query(query_id: str) -> Content:
        content = queries[query_id].sent()
        return item(content.item_id) if isinstance(content, StoredItem) else content

    grades = {each.query_id: dict(each.grades) for each in queries.values()}
    contents: dict[str, Callable[[str], Content]] = {"query": query, "item": item}
    access = Access.from_environment()
    with closing(judgements), Client(address, access=access) as client:
        first = [item_id for ids in pool.values() for item_id in ids][:_CHECKED_COUNT]
        if all(item(each) is None for each in first):
            raise ValueError(
                f"index {index_id} at {address} has none of the items that {folder} pooled; give "
                "the --address of the Tandem that has them"
            )
        with JudgeServer(port, pool, grades, contents, judgements) as server:
            out.print(f"open http://127.0.0.1:{server.server_port}/#{server.token}")
            out.print("Ctrl-C ends it; the same command continues where you ended")
            server.serve_forever()


@with_json
def status(folder: FOLDER) -> None:
    """Show how many judgements are missing.

    As many as a difference of 3 points needs, with what systems differ by so far.
    """
    pool, queries = read_object(folder / POOL_NAME), read_judged_queries(folder)
    judged = sum(len(each.grades.keys() & {*pool.get(each.query_id, ())}) for each in queries)
    pairs = sum(map(len, pool.values()))
    found = [*standings(queries, pool, read_object(folder / RUNS_NAME))]
    answer({"judged": judged, "pairs": pairs, "standings": found})
    out.print(f"{folder}: {judged:,} of {pairs:,} pairs are judged")
    for each in found:
        scale, unit = (100, "points") if each["measure"] == R_AT_1 else (1, "halvings")
        out.print(
            f"{each['system']}, finding {each['target']}s, {each['measure']}: "
            f"{scale * each['difference']:+.3g} ± {scale * each['half_interval']:.2g} {unit}, by "
            f"{each['judged_count']:,} of {each['differing_count']:,} queries with other first "
            f"answers, of {each['query_count']:,}; {scale * each['sought_difference']:g} {unit} "
            f"need {each['needed_query_count']:,} queries: "
            f"{each['missing_judgement_count']:,} more judgements"
        )
