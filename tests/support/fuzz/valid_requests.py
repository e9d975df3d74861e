"""Requests that are right, for every method, to be made wrong."""

from collections.abc import Sequence

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tandem.client import Client
from tandem.v1 import (
    attribute_pb2,
    content_pb2,
    content_service_pb2,
    encoder_service_pb2,
    index_admin_service_pb2,
    index_service_pb2,
    rerank_service_pb2,
    search_service_pb2,
)
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.score_calibration_pb2 import ScoreCalibration
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.pictures.pictures import encoded, noise

INDEX_ID = "fuzz"
ITEM_COUNT = 6
TIMEOUT_SECONDS = 30
SENTENCES = (
    "two dogs left of one umbrella",
    "a red cat above three blue cars",
    "one green tree right of four yellow stars",
)


def fill_index(orchestrator_address: str) -> str:
    """Ingests a few texts and pictures; returns their consistency token."""
    items: list[tuple[str, str | bytes, dict[str, str | int]]] = []
    for number in range(ITEM_COUNT):
        attributes: dict[str, str | int] = {"kind": "a", "size": number}
        items.append((f"text-{number}", SENTENCES[number % len(SENTENCES)], attributes))
        items.append((f"image-{number}", encoded(noise(number, 32), "PNG"), attributes))
    with Client(orchestrator_address, timeout_seconds=TIMEOUT_SECONDS) as client:
        outcomes = list(client.ingest(items, index_id=INDEX_ID))
    assert all(outcome.error is None for outcome in outcomes)
    return outcomes[-1].consistency_token


def text_and_image_encodings(
    encoder_address: str,
) -> tuple[encoder_service_pb2.EncodeContentsResponse, Sequence[content_pb2.Content]]:
    """Returns what the encoder makes of a text and a picture, and these."""
    contents = [
        content_pb2.Content(text=SENTENCES[0]),
        content_pb2.Content(image=encoded(noise(1, 32), "PNG")),
    ]
    with grpc.insecure_channel(encoder_address) as channel:
        response = EncoderServiceStub(channel).EncodeContents(
            encoder_service_pb2.EncodeContentsRequest(contents=contents), timeout=TIMEOUT_SECONDS
        )
    return response, contents


def valid_requests(
    orchestrator_address: str, encoder_address: str
) -> tuple[dict[str, list[Message]], list[str | bytes]]:
    """Returns requests by method name, and the names and contents in them."""
    token = fill_index(orchestrator_address)
    made, contents = text_and_image_encodings(encoder_address)
    text, image = (result.encoding for result in made.results)
    fingerprint = made.model_fingerprint
    searches = _searches(contents, text, fingerprint, token)
    with grpc.insecure_channel(orchestrator_address) as channel:
        answer = SearchServiceStub(channel).SearchItems(searches[0], timeout=TIMEOUT_SECONDS)
    searches.append(search_service_pb2.SearchItemsRequest(cursor=answer.next_cursor))
    requests: dict[str, list[Message]] = {
        "SearchItems": list(searches),
        "StreamSearchItems": [
            search_service_pb2.StreamSearchItemsRequest(search=search) for search in searches
        ],
        "BatchSearchItems": [search_service_pb2.BatchSearchItemsRequest(searches=searches[:3])],
        "EncodeContents": [
            encoder_service_pb2.EncodeContentsRequest(
                contents=contents,
                truncation_policy=policy,  # type: ignore[arg-type]
                purpose="ENCODE_PURPOSE_QUERY",
            )
            for policy in content_pb2.TruncationPolicy.values()
        ],
        **_content_requests(contents, (text, image), fingerprint),
        **_index_requests(contents, (text, image), fingerprint),
        **_rerank_requests(text, image, fingerprint),
        **_other_requests(),
    }
    known: list[str | bytes] = [
        *(INDEX_ID, "kind", "size", "a", token, fingerprint, answer.next_cursor),
        *(f"text-{number}" for number in range(3)),
        *(f"image-{number}" for number in range(3)),
        *(text.embedding.values, image.tokens.image.values, text.tokens.text.ids),
        *(contents[0].text, contents[1].image, encoded(noise(2, 24), "WEBP")),
    ]
    return requests, known


def _content_requests(
    contents: Sequence[content_pb2.Content],
    encodings: tuple[encoder_service_pb2.Encoding, encoder_service_pb2.Encoding],
    fingerprint: str,
) -> dict[str, list[Message]]:
    text, image = encodings
    documents = [
        content_service_pb2.Document(content=contents[1]),
        content_service_pb2.Document(item_id="image-1"),
    ]
    return {
        "FetchItems": [
            content_service_pb2.FetchItemsRequest(index_id=INDEX_ID, item_ids=["image-0", "text-1"])
        ],
        "ListItems": [
            content_service_pb2.ListItemsRequest(
                index_id=INDEX_ID, page_size=3, page_token="image-1"
            )
        ],
        "EmbedContents": [content_service_pb2.EmbedContentsRequest(contents=contents)],
        "ScoreDocuments": [
            content_service_pb2.ScoreDocumentsRequest(
                query=contents[0], index_id=INDEX_ID, documents=documents
            )
        ],
        "ListItemIds": [
            index_service_pb2.ListItemIdsRequest(index_id=INDEX_ID, after="image-1", max_count=3)
        ],
        "ScoreTokens": [
            rerank_service_pb2.ScoreTokensRequest(
                query=text.tokens, model_fingerprint=fingerprint, candidates=[image.tokens]
            )
        ],
    }


def _searches(
    contents: Sequence[content_pb2.Content],
    text: encoder_service_pb2.Encoding,
    fingerprint: str,
    token: str,
) -> list[search_service_pb2.SearchItemsRequest]:
    everything = search_service_pb2.SearchItemsRequest(
        query=contents[0],
        index_id=INDEX_ID,
        retrieve_k=20,
        rerank_k=4,
        return_n=2,
        content_included=True,
        filter=a_filter(),
        consistency_tokens=[token],
        fusion=search_service_pb2.Fusion(method="FUSION_METHOD_ADD", cross_encoder_weight=0.4),
        diversity=search_service_pb2.Diversity(relevance_weight=0.5, duplicate_similarity=0.99),
        explained=True,
        truncation_policy="TRUNCATION_POLICY_BEST_WINDOW",
        adaptive_depth=True,
        neighbours_enabled=True,
    )
    composed = search_service_pb2.SearchItemsRequest(
        index_id=INDEX_ID, target_modality="MODALITY_IMAGE", all_modalities_included=True
    )
    composed.query_parts.add(content=contents[1], weight=0.5)
    composed.query_parts.add(item_id="image-1", weight=-0.25)
    composed.query_parts.add().encoding.CopyFrom(
        search_service_pb2.GivenEncoding(
            embedding=text.embedding,
            model_fingerprint=fingerprint,
            modality="MODALITY_TEXT",
            tokens=text.tokens,
        )
    )
    plain = search_service_pb2.SearchItemsRequest(query=contents[1], index_id=INDEX_ID, return_n=2)
    return [everything, composed, plain]


def a_filter() -> attribute_pb2.Filter:
    """Returns a filter with every kind of condition in it."""
    a = attribute_pb2.AttributeValue(text="a")
    return attribute_pb2.Filter(
        all_of=attribute_pb2.FilterList(
            filters=[
                attribute_pb2.Filter(equals=attribute_pb2.Equality(name="kind", value=a)),
                attribute_pb2.Filter(range=attribute_pb2.Range(name="size", at_least=0)),
                attribute_pb2.Filter(one_of=attribute_pb2.OneOf(name="kind", values=[a])),
                attribute_pb2.Filter(prefix=attribute_pb2.Prefix(name="kind", prefix="")),
                attribute_pb2.Filter(exists="size"),
                attribute_pb2.Filter(negated=attribute_pb2.Filter(exists="gone")),
            ]
        )
    )


def _index_requests(
    contents: Sequence[content_pb2.Content],
    encodings: Sequence[encoder_service_pb2.Encoding],
    fingerprint: str,
) -> dict[str, list[Message]]:
    ingest = search_service_pb2.IngestItemsRequest(index_id=INDEX_ID, request_id="one")
    upsert = index_service_pb2.UpsertItemsRequest(
        index_id=INDEX_ID, model_fingerprint=fingerprint, request_id="two"
    )
    for number, (content, encoding) in enumerate(zip(contents, encodings, strict=True)):
        item = ingest.items.add(item_id=f"new-{number}", content=content)
        item.attributes["size"].integer = number
        item.attributes["tags"].texts.values.extend(["a", "b"])
        stored = upsert.items.add(
            item_id=f"new-{number}",
            content=content,
            embedding=encoding.embedding,
            tokens=encoding.tokens,
        )
        stored.attributes["size"].real = number
    gone = ["gone-1", "gone-2"]
    search = index_service_pb2.SearchEmbeddingsRequest(
        index_id=INDEX_ID,
        queries=[encoding.embedding for encoding in encodings],
        model_fingerprint=fingerprint,
        modality="MODALITY_IMAGE",
        retrieve_k=5,
        filter=a_filter(),
        embeddings_included=True,
    )
    ids = ["image-0", "text-1"]
    text, image = (encoding.embedding for encoding in encodings)
    neighbours = index_service_pb2.FindNeighboursRequest(
        index_id=INDEX_ID,
        model_fingerprint=fingerprint,
        query=text,
        candidates=[image, text],
        pool_k=6,
        pillar_k=4,
        neighbour_k=3,
    )
    return {
        "FindNeighbours": [neighbours],
        "IngestItems": [ingest],
        "DescribeIndex": [search_service_pb2.DescribeIndexRequest(index_id=INDEX_ID)],
        "DescribeShardIndex": [index_service_pb2.DescribeShardIndexRequest(index_id=INDEX_ID)],
        "SetCalibrations": [
            search_service_pb2.SetCalibrationsRequest(
                index_id=INDEX_ID,
                calibrations=[
                    ScoreCalibration(
                        model_fingerprint=fingerprint,
                        scorer="bi-encoder",
                        query_modality="MODALITY_TEXT",
                        target_modality="MODALITY_IMAGE",
                        null_scores=bytes(80),
                    )
                ],
            )
        ],
        "ListIndexes": [search_service_pb2.ListIndexesRequest(page_size=1, page_token="a")],
        "ListShardIndexes": [
            index_service_pb2.ListShardIndexesRequest(after="a", max_count=2, index_ids=[INDEX_ID])
        ],
        "RemoveItems": [search_service_pb2.RemoveItemsRequest(index_id=INDEX_ID, item_ids=gone)],
        "SearchEmbeddings": [search],
        "UpsertItems": [upsert],
        "DeleteItems": [index_service_pb2.DeleteItemsRequest(index_id=INDEX_ID, item_ids=gone)],
        "GetItems": [
            index_service_pb2.GetItemsRequest(
                index_id=INDEX_ID, item_ids=ids, encodings_included=included
            )
            for included in (False, True)
        ],
    }


def _rerank_requests(
    text: encoder_service_pb2.Encoding, image: encoder_service_pb2.Encoding, fingerprint: str
) -> dict[str, list[Message]]:
    images, texts = ["image-0", "image-1", "gone"], ["text-0"]
    batch = rerank_service_pb2.ScoreBatchRequest(index_id=INDEX_ID, model_fingerprint=fingerprint)
    batch.queries.add(query=text.tokens, item_ids=images)
    batch.queries.add(query=image.tokens, item_ids=texts)
    graph = rerank_service_pb2.ScoreGraphRequest(
        model_fingerprint=fingerprint,
        query_modality="MODALITY_TEXT",
        item_pillars=[image.embedding],
        query_pillars=[text.embedding],
    )
    for encoding in (text, image):
        graph.nodes.add(embedding=encoding.embedding, near_texts=[0, 1], near_images=[2, 3])
    return {
        "ScoreGraph": [graph],
        "ScoreCandidates": [
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=INDEX_ID, query=tokens, model_fingerprint=fingerprint, item_ids=item_ids
            )
            for tokens, item_ids in ((text.tokens, images), (image.tokens, texts))
        ],
        "ScoreBatch": [batch],
    }


def _other_requests() -> dict[str, list[Message]]:
    admin = index_admin_service_pb2
    tuning = admin.IndexTuning(index_type="IVF2,Flat", recall_target=0.9, memory_bytes=1 << 20)
    tuning.parameters["nprobe"] = 2
    modality = content_pb2.MODALITY_IMAGE
    service = "tandem.v1.SearchService"
    return {
        "DescribeIndexes": [admin.DescribeIndexesRequest(index_id=INDEX_ID)],
        "TuneIndex": [
            admin.TuneIndexRequest(index_id=INDEX_ID, modality=modality, tuning=tuning),
            admin.TuneIndexRequest(index_id=INDEX_ID),
        ],
        "BackUpShard": [admin.BackUpShardRequest(folder="nightly")],
        "RebuildIndex": [admin.RebuildIndexRequest(index_id=INDEX_ID, modality=modality)],
        "ReadChanges": [admin.ReadChangesRequest(after_sequence=3, max_count=100)],
        "FenceWrites": [
            admin.FenceWritesRequest(),
            admin.FenceWritesRequest(sealed_sequence=1 << 40),
        ],
        "AdviseIndexType": [
            admin.AdviseIndexTypeRequest(
                index_id=INDEX_ID, modality=modality, index_types=["Flat", "IVF2,Flat"]
            )
        ],
        "Check": [health_pb2.HealthCheckRequest(service=name) for name in ("", service)],
        "Watch": [health_pb2.HealthCheckRequest(service=name) for name in ("", service)],
        "ServerReflectionInfo": [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=service),
            reflection_pb2.ServerReflectionRequest(file_by_filename="tandem/v1/content.proto"),
        ],
    }
