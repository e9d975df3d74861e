"""`tandem search`: every form of a query, every option, and what it prints about the answer."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from struct import pack

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.cli.terminal.console import out
from tandem.errors import TextEmpty
from tandem.v1 import content_pb2, cost_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import FULL, serving_search
from tests.support.client.search_server import ToldService


async def paged(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Three pages of one item; "bad" is refused."""
    if request.query.text == "bad":
        raise TextEmpty()
    number = int(request.cursor or b"1")
    return pb.SearchItemsResponse(
        items=[
            pb.RankedItem(
                item_id=f"item-{number}",
                final_rank=number,
                score=0.625,
                explanation=pb.Explanation(
                    terms=[pb.ScoreTerm(name="similarity", value=1.25, weight=0.5)],
                    ranks=[pb.StageRank(stage="retrieve", rank=9)],
                )
                if request.explained
                else None,
            )
        ],
        coverage=FULL,
        rerank=pb.RerankSummary(reranked_depth=4, stop="RERANK_STOP_COMPLETE"),
        cost=cost_pb2.InferenceCost(pair_count=4),
        retrievals=[
            pb.ShardRetrieval(
                shard_number=1,
                modality="MODALITY_IMAGE",
                path={
                    "strategy": "SEARCH_STRATEGY_PRE_FILTER",
                    "index_type": "IVF64,SQ8",
                    "device": "cpu",
                    "fallback": "SEARCH_FALLBACK_DEVICE",
                    "fallback_reason": "a GPU index takes no filter [/x]",
                    "matching_count": 7,
                },
                item_count=3000,
            )
        ],
        next_cursor=str(number + 1).encode() if number < 3 else b"",
    )


def run(*arguments: str) -> tuple[Result, ToldService]:
    """Runs `tandem search` against a server that answers `paged`."""
    with serving_search(paged) as (address, service), pytest.MonkeyPatch.context() as patch:
        # Not by COLUMNS, which was read when the console was made.
        patch.setattr(out, "width", 200)
        result = CliRunner().invoke(app, ["search", *arguments, "--address", address])
    return result, service


def sent(*arguments: str) -> pb.SearchItemsRequest:
    """Returns the request that the command sends."""
    result, service = run(*arguments)
    assert result.exit_code == 0, result.output
    [request] = service.requests
    assert isinstance(request, pb.SearchItemsRequest)
    return request


def test_every_option_is_sent() -> None:
    request = sent(
        *("a cup", "--index", "pets", "--target-modality", "text", "--all-modalities-included"),
        *("--retrieve-k", "30", "--rerank-k", "20", "--return-n", "10"),
        *("--rerank-required", "--adaptive-depth", "--full-coverage-required"),
        *("--neighbours-enabled", "--neighbours-required"),
        *("--fusion", "add", "--cross-encoder-weight", "0.25", "--min-probability", "0.5"),
        *("--relevance-weight", "0.75", "--duplicate-similarity", "0.875"),
        *("--truncation-policy", "truncate", "--explain", "--consistency-token", "token"),
    )

    assert request == pb.SearchItemsRequest(
        query=content_pb2.Content(text="a cup"),
        index_id="pets",
        target_modality="MODALITY_TEXT",
        all_modalities_included=True,
        retrieve_k=30,
        rerank_k=20,
        return_n=10,
        rerank_required=True,
        adaptive_depth=True,
        neighbours_enabled=True,
        neighbours_required=True,
        full_coverage_required=True,
        fusion=pb.Fusion(method="FUSION_METHOD_ADD", cross_encoder_weight=0.25),
        min_probability=0.5,
        diversity=pb.Diversity(relevance_weight=0.75, duplicate_similarity=0.875),
        truncation_policy="TRUNCATION_POLICY_TRUNCATE",
        explained=True,
        consistency_tokens=["token"],
        content_included=True,
    )


def test_parts_are_weighed_in_their_order(tmp_path: Path) -> None:
    picture, encoding = tmp_path / "cup.png", tmp_path / "encoding.json"
    picture.write_bytes(b"png")
    values = pack("<2f", 0.5, 0.75)
    encoding.write_text(
        json.dumps(
            {
                "embedding": {"values": b64encode(values).decode()},
                "modelFingerprint": "f1",
                "modality": "MODALITY_TEXT",
            }
        )
    )

    request = sent(
        *("at night", "--image", str(picture), "--item", "a", "--item", "b"),
        *("--encoding", str(encoding), "--target-modality", "image"),
        *("--weight", "1", "--weight", "0.5", "--weight", "-0.25", "--weight", "2"),
        *("--weight", "3"),
    )

    assert [part.weight for part in request.query_parts] == [1, 0.5, -0.25, 2, 3]
    text, image, first, second, given = request.query_parts
    assert (text.content.text, image.content.image) == ("at night", b"png")
    assert (first.item_id, second.item_id) == ("a", "b")
    assert given.encoding.embedding.values == values
    assert (given.encoding.model_fingerprint, given.encoding.modality) == ("f1", 1)


@pytest.mark.parametrize(("pages", "shown"), [(1, 1), (9, 3)])
def test_so_many_pages_are_shown(pages: int, shown: int) -> None:
    """One after the other by cursor, and whether there is more."""
    result, service = run("a cup", "--pages", str(pages))

    assert [f"item-{n}" in result.stdout for n in range(1, 5)] == [n <= shown for n in range(1, 5)]
    assert [request.cursor for request in service.requests] == [
        b"",
        b"2",
        b"3",
    ][:shown]
    assert ("there is more" in result.stdout) is (shown < 3)


def test_scores_are_explained() -> None:
    plain, _ = run("a cup")
    explained, _ = run("a cup", "--explain")

    assert "similarity 1.250" not in plain.stdout
    assert "+0.5 x similarity 1.250" in explained.stdout
    assert "retrieve 9" in explained.stdout
    assert "shard 1" not in plain.stdout
    assert (
        "shard 1, images: 7 of 3,000 items match; filtered first, then searched the index among "
        "the matches (pre_filter); IVF64,SQ8 on cpu; not as configured, device: a GPU index takes "
        "no filter [/x]"
    ) in explained.stdout.replace("\n", "")


def test_a_stream_shows_both_orders() -> None:
    """The bi-encoder's first."""
    result, _ = run("a cup", "--stream")

    assert result.stdout.index("as retrieved:") < result.stdout.index("final:")
    assert result.stdout.count("item-1") == 2


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_file_of_texts_is_searched_in_batches(tmp_path: Path, end: bytes) -> None:
    """A refused line is printed among the others' answers, and changes the exit status."""
    queries = tmp_path / "queries.txt"
    queries.write_bytes(end.join([b"a cup", b"", b"bad", b"two dogs", b""]))

    result, service = run("--queries", str(queries), "--return-n", "3")

    assert result.exit_code == 1
    assert "TEXT_EMPTY" in result.stderr
    assert result.stdout.count("item-1") == 2
    [request] = service.requests
    assert isinstance(request, pb.BatchSearchItemsRequest)
    assert [each.query.text for each in request.searches] == ["a cup", "bad", "two dogs"]
    assert all(each.return_n == 3 for each in request.searches)


def test_the_model_is_described() -> None:
    with serving_search(paged) as (address, _):
        result = CliRunner().invoke(app, ["models", "describe", "--address", address])

    assert result.exit_code == 0
    assert "bf16" in result.stdout
    assert "sigmoid(1.5 x match logit -0.25)" in result.stdout
