"""One picture and one text of a network, as torch reads them and as numpy does."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.lab.zoo.network import Parts, ZooNetwork
from tandem.lab.zoo.word_readers import WordGru, WordReader
from tests.support.zoo.by_hand import Floats, both_ways, floats, gru
from tests.support.zoo.tiny_zoo import tiny_texts, tiny_tokens


@dataclass(frozen=True, slots=True)
class OnePair:
    """Holds a picture of three regions that count, of four, and a text of three words, of five."""

    ids: Tensor
    text_mask: Tensor
    tokens: Tensor
    image_mask: Tensor

    @property
    def features(self) -> list[Floats]:
        return [floats(each) for each in self.tokens[0, :3]]

    def words(self, reader: WordReader) -> list[Floats]:
        """Returns the states of the words that count, by the reader's GRUs."""
        assert isinstance(reader, WordGru)
        read = [floats(reader.word.weight[number]) for number in self.ids[0, :3]]
        if reader.backward_gru is None:
            return gru(reader.onward, read)
        return both_ways(reader.onward, reader.backward_gru, read)

    @torch.inference_mode()
    def read(self, network: ZooNetwork) -> tuple[Parts, Parts]:
        """Returns what the network makes of the picture and of the text."""
        return (
            network.read_images(self.tokens, self.image_mask),
            network.read_texts(self.ids, self.text_mask),
        )

    @torch.inference_mode()
    def score(self, network: ZooNetwork) -> float:
        return network.every(*self.read(network)).item()


def one_pair() -> OnePair:
    """Returns a pair with a masked region and masked words."""
    ids, _ = tiny_texts(1)
    return OnePair(
        ids,
        torch.tensor([[1, 1, 1, 0, 0]]),
        tiny_tokens(1),
        torch.tensor([[1, 1, 1, 0]]),
    )
