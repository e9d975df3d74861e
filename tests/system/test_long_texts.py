"""A match planted at the end of a long text: the shipped model finds it by its best window."""

from collections.abc import Iterator

import grpc
import pytest

from tandem.cli.stack import LocalStack
from tandem.corpus.records import Record
from tandem.v1 import content_pb2, encoder_service_pb2, index_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub

# Words that say nothing of any scene.
FILLER = "this text goes on and on and says nothing of what can be seen here "
FOUND_AMONG = 3


@pytest.fixture(scope="module")
def encoder(stack: LocalStack) -> Iterator[EncoderServiceStub]:
    with grpc.insecure_channel(address_of(stack, "encoder")) as channel:
        yield EncoderServiceStub(channel)


def address_of(stack: LocalStack, name: str) -> str:
    return next(each.address for each in stack.endpoints() if each.name == name)


def encode(
    encoder: EncoderServiceStub, text: str, policy: content_pb2.TruncationPolicy
) -> tuple[encoder_service_pb2.Encoding, str]:
    """Returns the text's encoding and the model's fingerprint."""
    response = encoder.EncodeContents(
        encoder_service_pb2.EncodeContentsRequest(
            contents=[content_pb2.Content(text=text)], truncation_policy=policy
        ),
        timeout=30,
    )
    assert not response.results[0].HasField("error"), response.results[0].error
    return response.results[0].encoding, response.model_fingerprint


def nearest(stack: LocalStack, windows: list[content_pb2.Embedding], fingerprint: str) -> list[str]:
    """Returns the ids of the pictures nearest to any of the windows, over both shards."""
    similarity: dict[str, float] = {}
    for shard in ("index-0", "index-1"):
        with grpc.insecure_channel(address_of(stack, shard)) as channel:
            response = IndexServiceStub(channel).SearchEmbeddings(
                index_service_pb2.SearchEmbeddingsRequest(
                    index_id="scenes",
                    queries=windows,
                    model_fingerprint=fingerprint,
                    modality=content_pb2.MODALITY_IMAGE,
                    retrieve_k=20,
                ),
                timeout=30,
            )
        for hit_list in response.hit_lists:
            for hit in hit_list.hits:
                similarity[hit.item_id] = max(hit.similarity, similarity.get(hit.item_id, -1))
    return sorted(similarity, key=lambda item_id: -similarity[item_id])[:FOUND_AMONG]


def found_count(
    stack: LocalStack,
    encoder: EncoderServiceStub,
    records: list[Record],
    before: str,
    policy: content_pb2.TruncationPolicy,
) -> int:
    """Returns how many of the records' pictures their captions find, with `before` before them."""
    found = 0
    for record in records:
        caption = next(each.text for each in record.captions if each.language == "en")
        encoding, fingerprint = encode(encoder, before + caption, policy)
        windows = [encoding.embedding, *(each.embedding for each in encoding.further_windows)]
        found += record.record_id in nearest(stack, windows, fingerprint)
    return found


def test_best_window_finds_what_truncation_misses(
    stack: LocalStack, encoder: EncoderServiceStub, records: list[Record], scenes_index: str
) -> None:
    """The captions alone are the control: what they do not find, no window can."""
    asked = records[::4]
    error, truncate, best_window = (
        content_pb2.TRUNCATION_POLICY_ERROR,
        content_pb2.TRUNCATION_POLICY_TRUNCATE,
        content_pb2.TRUNCATION_POLICY_BEST_WINDOW,
    )
    before = FILLER * 30

    by_caption = found_count(stack, encoder, asked, "", error)
    by_window = found_count(stack, encoder, asked, before, best_window)
    by_beginning = found_count(stack, encoder, asked, before, truncate)

    assert by_caption >= 0.8 * len(asked)
    assert by_window >= 0.6 * by_caption
    assert by_beginning <= 0.3 * by_caption


def test_what_was_read_is_told(stack: LocalStack, encoder: EncoderServiceStub) -> None:
    """10,000 tokens under either policy, by the shipped model's own limit."""
    text = "dog " * 9_998

    cut, _ = encode(encoder, text, content_pb2.TRUNCATION_POLICY_TRUNCATE)
    read, _ = encode(encoder, text, content_pb2.TRUNCATION_POLICY_BEST_WINDOW)

    assert cut.text_use.token_count == read.text_use.token_count == 10_000
    limit = cut.text_use.used_token_count
    assert limit == len(cut.tokens.text.ids) // 4
    assert len(read.further_windows) == 31
    assert read.text_use.used_token_count == 2 + 32 * (limit - 2)
