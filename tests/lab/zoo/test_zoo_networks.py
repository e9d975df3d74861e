"""What holds for every network of the zoo, whatever its equations."""

from typing import get_args

import pytest
import torch

from tandem.lab.zoo.config import TextReader, ZooName
from tandem.lab.zoo.network import Lesson
from tandem.lab.zoo.zoo_model import NETWORKS
from tests.support.grid import sampled
from tests.support.zoo.tiny_zoo import all_regions, tiny_network, tiny_texts, tiny_tokens


def network_class(name: ZooName) -> object:
    """Returns what the variants of a paper share."""
    return getattr(NETWORKS[name], "func", NETWORKS[name])


SAMPLE = sampled(get_args(ZooName), fault=network_class)
NAMES = pytest.mark.parametrize("name", SAMPLE)


def test_every_name_has_a_network() -> None:
    assert set(NETWORKS) == set(get_args(ZooName))


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        *((name, "gru") for name in SAMPLE),
        *((n, "transformer") for n in ("saem", "sgr")),
    ],
)
@torch.inference_mode()
def test_a_masked_word_has_no_influence(name: ZooName, reader: TextReader) -> None:
    """Another id where the mask is 0 changes no score, and one where it is 1 does."""
    network = tiny_network(name, text_reader=reader)
    ids, mask = tiny_texts()
    images = network.read_images(tiny_tokens(), all_regions(tiny_tokens()))
    scores = network.every(images, network.read_texts(ids, mask))

    masked = torch.where(mask == 0, (ids + 7) % 30, ids)
    counted = ids.clone()
    counted[:, 1] = (ids[:, 1] + 7) % 30

    same = network.every(images, network.read_texts(masked, mask))
    other = network.every(images, network.read_texts(counted, mask))
    assert torch.allclose(same, scores, atol=1e-6)
    assert not torch.allclose(other, scores, atol=1e-6)


@NAMES
@torch.inference_mode()
def test_a_masked_region_has_no_influence(name: ZooName) -> None:
    """Other features where the mask is 0 change no score, and some where it is 1 do."""
    network = tiny_network(name)
    tokens = tiny_tokens()
    mask = all_regions(tokens)
    mask[1, 2:] = 0
    texts = network.read_texts(*tiny_texts())
    scores = network.every(network.read_images(tokens, mask), texts)

    masked, counted = tokens.clone(), tokens.clone()
    masked[1, 2:] += 1
    counted[1, 1] += 1

    same = network.every(network.read_images(masked, mask), texts)
    other = network.every(network.read_images(counted, mask), texts)
    assert torch.allclose(same, scores, atol=1e-6)
    assert not torch.allclose(other[1], scores[1], atol=1e-6)
    assert torch.allclose(other[0], scores[0], atol=1e-6)


@NAMES
@torch.inference_mode()
def test_a_score_depends_on_its_pair_alone(name: ZooName) -> None:
    """In any order of pictures and texts, and row by row; embeddings are unit vectors."""
    network = tiny_network(name)
    (ids, mask), tokens = tiny_texts(4), tiny_tokens(3)
    every = all_regions(tokens)
    images, texts = network.read_images(tokens, every), network.read_texts(ids, mask)
    scores = network.every(images, texts)

    pictures, captions = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    permuted = network.every(
        network.read_images(tokens[pictures], every),
        network.read_texts(ids[captions], mask[captions]),
    )
    rows = network.row_by_row(images, tuple(each[:3] for each in texts))

    assert scores.shape == (3, 4)
    assert torch.allclose(permuted, scores[pictures][:, captions], atol=1e-6)
    assert torch.allclose(rows, scores.diagonal(), atol=1e-6)
    if network.embeds:
        for parts in (images, texts):
            lengths = network.embedding(parts).norm(dim=-1)
            assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-5)
    else:
        with pytest.raises(ValueError, match="scores pairs and embeds nothing"):
            network.embedding(images)


@NAMES
def test_a_seed_gives_the_same_step_and_every_weight_learns(name: ZooName) -> None:
    """Another seed gives other gradients; a weight without one would be served for nothing."""

    def gradients(seed: int) -> dict[str, torch.Tensor | None]:
        network = tiny_network(name, seed).train()
        torch.manual_seed(seed)
        ids, mask = tiny_texts()
        tokens = tiny_tokens()
        images = network.read_images(tokens, all_regions(tokens))
        texts = network.read_texts(ids, mask)
        lesson = Lesson(ids, mask, all_regions(tokens), torch.arange(3), share_done=0.0)
        loss = network.every(images, texts).square().sum()
        further = network.further_loss(images, texts, lesson)
        (loss if further is None else loss + further).backward()
        return {n: each.grad for n, each in network.named_parameters()}

    once, again, other = (gradients(seed) for seed in (0, 0, 1))

    assert [n for n, each in once.items() if each is None] == []
    pairs = [(each, again[n], other[n]) for n, each in once.items()]
    assert all(torch.equal(first, second) for first, second, _ in pairs)  # type: ignore[arg-type]
    assert not all(torch.equal(first, third) for first, _, third in pairs)  # type: ignore[arg-type]
    assert all(each is not None and each.isfinite().all() for each in once.values())
