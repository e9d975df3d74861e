"""A GRU over padded texts gives what torch gives for packed ones."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tandem.lab.zoo.word_readers import WordGru, reversed_places
from tests.support.zoo.tiny_zoo import tiny_config, tiny_texts


def test_both_directions_are_those_of_a_packed_gru() -> None:
    """Their mean, at every word that counts."""
    torch.manual_seed(0)
    reader = WordGru(tiny_config("vse_pp"), is_bidirectional=True)
    assert reader.backward_gru is not None
    whole = nn.GRU(5, 16, batch_first=True, bidirectional=True)
    own = dict(reader.onward.named_parameters())
    other = {f"{name}_reverse": value for name, value in reader.backward_gru.named_parameters()}
    whole.load_state_dict(own | other)
    ids, mask = tiny_texts()

    packed = pack_padded_sequence(
        reader.word(ids), mask.sum(1), batch_first=True, enforce_sorted=False
    )
    states = pad_packed_sequence(whole(packed)[0], batch_first=True)[0]

    counts = mask[..., None]
    expected = (states[..., :16] + states[..., 16:]) / 2
    assert torch.allclose(reader(ids, mask) * counts, expected * counts, atol=1e-6)


def test_positions_are_reversed_within_the_valid_tokens() -> None:
    """Padding stays where it is."""
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])

    assert reversed_places(mask).tolist() == [[2, 1, 0, 3], [3, 2, 1, 0]]
