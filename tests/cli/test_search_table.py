"""What the table prints about a degraded answer."""

from dataclasses import replace

import pytest

from tandem.cli.search.search_table import print_result, warnings
from tandem.client import (
    Coverage,
    DegradationKind,
    ErrorReason,
    FoundItem,
    NeighbourStopReason,
    NeighbourSummary,
    RerankStopReason,
    RerankSummary,
    SearchResult,
    StageSeconds,
    TextUse,
)
from tandem.contract.search_path import (
    KeywordState,
    SearchPath,
    SearchStrategy,
    ShardRetrieval,
)

FULL = Coverage(4, 4, 60, 60, {})


def result(
    degradations: tuple[str, ...],
    rerank: RerankSummary,
    text_uses: tuple[TextUse, ...] = (),
    coverage: Coverage = FULL,
) -> SearchResult:
    """Returns an answer without items."""
    seconds = StageSeconds(0.0, 0.0, 0.0, 0.0, 0.0)
    return SearchResult(
        (), "f1", seconds, coverage, rerank, tuple(map(DegradationKind, degradations)), text_uses
    )


@pytest.mark.parametrize(
    ("degradation", "said"),
    [
        ("RERANK_SKIPPED", "not reranked: unavailable; docs/runbook.md says what to do"),
        (
            "RERANK_PARTIAL",
            "only the first 8 candidates were reranked: unavailable; docs/runbook.md says what to "
            "do",
        ),
        (
            "TOKENS_MISSING",
            "3 of the candidates have no tokens for the cross-encoder; ingest them again with the "
            "model that serves",
        ),
        (
            "EMBEDDING_CACHED",
            "the encoder's model is unavailable; the encoding came from a cache; docs/runbook.md "
            "says what to do",
        ),
        (
            "SHARD_REBUILDING",
            "a shard scanned all items, because its index is being built",
        ),
        ("SOMETHING_NEWER", "SOMETHING_NEWER"),
    ],
)
def test_each_degradation_is_printed(degradation: str, said: str) -> None:
    """In words, with how much and why; one of a newer server by its name."""
    answer = result((degradation,), RerankSummary(8, RerankStopReason.UNAVAILABLE, 3))

    assert warnings(answer) == [said]


@pytest.mark.parametrize(
    ("degradation", "said"),
    [
        ("NEIGHBOURS_SKIPPED", "not ordered by neighbours: time; rerank fewer (--rerank-k)"),
        ("NEIGHBOURS_PARTIAL", "ordered without the neighbours of shard 3: SERVICE_UNAVAILABLE"),
    ],
)
def test_missing_neighbours_are_printed(degradation: str, said: str) -> None:
    answer = replace(
        result((degradation,), RerankSummary(8, RerankStopReason.COMPLETE)),
        neighbours=NeighbourSummary(
            0, NeighbourStopReason.TIME, "", {3: ErrorReason.SERVICE_UNAVAILABLE}
        ),
    )

    assert warnings(answer) == [said]


def test_neighbour_scores_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Only where an item has one; with the stage's time, model and stop."""
    scored = FoundItem("a", 0.5, 1.0, 0.75, 2, 1, None, neighbour_score=0.25)
    plain = replace(result((), RerankSummary(2, RerankStopReason.COMPLETE)), items=(scored,))
    asked = replace(
        plain, neighbours=NeighbourSummary(1, NeighbourStopReason.COMPLETE, "leaprr-1", {})
    )

    print_result(asked, paths_shown=True)
    printed = capsys.readouterr().out
    print_result(replace(plain, items=(replace(scored, neighbour_score=None),)))

    assert "+0.250" in printed
    assert "neighbours 0.0 ms" in printed
    assert "by neighbours 1 (complete), model leaprr-1" in printed
    assert "neighbours" not in capsys.readouterr().out


def test_what_a_setting_or_a_command_changes_is_said_with_it() -> None:
    """A shard without words, and a server without a neighbour model."""
    complete = RerankSummary(20, RerankStopReason.COMPLETE)
    wordless = ShardRetrieval(
        0, None, SearchPath(SearchStrategy.EXACT_SCAN), 60, KeywordState.DISABLED
    )
    answers = [
        replace(result(("KEYWORDS_SKIPPED",), complete), retrievals=(wordless,)),
        replace(
            result(("NEIGHBOURS_SKIPPED",), complete),
            neighbours=NeighbourSummary(0, NeighbourStopReason.NOT_SERVED, "", {}),
        ),
    ]

    [[words], [neighbours]] = map(warnings, answers)

    assert words.endswith(
        "shard 0: disabled; set INDEX_KEYWORDS_ENABLED=true for tandem up (docs/search.md)"
    )
    assert neighbours.endswith(
        "not served; tandem models add-neighbours adds such a model (docs/neighbours.md)"
    )


def test_the_last_line_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """What developers read, such as the model's fingerprint, comes with --explain."""
    answer = result((), RerankSummary(2, RerankStopReason.COMPLETE))

    print_result(answer)
    plain = capsys.readouterr().out
    print_result(answer, paths_shown=True)

    assert "reranked 2 (complete)" in plain
    assert not {"model", "pairs"} & set(plain.split())
    assert {"model", "pairs"} <= set(capsys.readouterr().out.split())


def test_a_whole_answer_has_no_warning() -> None:
    """A text that was read wholly is none either."""
    answer = result((), RerankSummary(20, RerankStopReason.COMPLETE), (TextUse(64, 64),))

    assert warnings(answer) == []


def test_withheld_probabilities_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    withheld = RerankSummary(
        2, RerankStopReason.COMPLETE, probability_withheld=ErrorReason.UNCALIBRATED
    )

    print_result(result((), withheld))

    assert "reranked 2 (complete, no probabilities: UNCALIBRATED)" in capsys.readouterr().out


def test_missing_shards_are_printed_once() -> None:
    """By the coverage, which says more than the flag, and also where there is no flag."""
    partial = Coverage(1, 2, 30, 60, {1: ErrorReason.DEADLINE_EXCEEDED})
    summary = RerankSummary(20, RerankStopReason.COMPLETE)

    flagged = warnings(result(("SHARDS_MISSING",), summary, coverage=partial))

    assert flagged == warnings(result((), summary, coverage=partial))
    assert flagged == [
        "partial answer: 1 of 2 shards (30 of 60 items) were searched; shard 1: DEADLINE_EXCEEDED"
    ]


def test_a_truncated_text_is_printed() -> None:
    answer = result((), RerankSummary(20, RerankStopReason.COMPLETE), (TextUse(80, 64),))

    assert warnings(answer) == [
        "64 of the 80 tokens of a text were read; --truncation-policy says how (docs/inputs.md)"
    ]
