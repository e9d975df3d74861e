"""A stage after the rerank, as docs/extending.md writes it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tandem.search.search import Searcher
from tests.support.orchestrator_svc.downstream import ingest, stack

PAGE = Path(__file__).parents[2] / "docs/extending.md"


def pinned(item_ids: list[str]) -> Any:
    """Returns the page's stage."""
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    return names["PinnedStage"](item_ids)


async def test_a_stage_of_the_page_reorders_the_searches_that_ask_for_it() -> None:
    """Items that it scored come first, and the explanation has the rank after it."""
    query = SearchQuery(
        parts=[WeightedPart(TextContent("0"))],
        index_id="scenes",
        target_modality=Modality.IMAGE,
        depth=Depth.of(None, None, None),
        rerank_disabled=True,
    )
    async with stack() as behind:
        items = [IncomingItem(f"image-{n}", ImageContent(str(n).encode())) for n in (0, 10, 20)]
        assert not any((await ingest(behind.ingester, items)).outcomes)
        services = replace(behind.searcher.services, stages=[pinned(["image-20", "elsewhere"])])
        searcher = Searcher(services, behind.searcher.depth_rules)

        plain = await searcher.search(query, Deadline.after(10.0))
        asked = await searcher.search(replace(query, explained=True), Deadline.after(10.0))

    assert [item.item_id for item in plain.items] == ["image-0", "image-10", "image-20"]
    assert [item.item_id for item in asked.items] == ["image-20", "image-0", "image-10"]
    first, second = asked.items[:2]
    assert first.explanation is not None
    assert first.explanation.ranks == {"retrieve": 3, "rerank": 3, "pinned": 1}
    assert [(term.name, term.value) for term in first.explanation.terms] == [("pinned_score", 1.0)]
    assert (first.score, second.score) == (1.0, second.similarity)
