"""What is served and what is trained read the same of each other's positions."""

import pytest
import torch

from tandem.modeling.joint_encoder import multi_head_attention

B, L, H, W = 3, 7, 2, 4


def made_query_key_value(seed: int) -> torch.Tensor:
    """Returns [B, L, 3D], large enough for attention to be sharp."""
    return 3.0 * torch.randn(B, L, 3 * H * W, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(2))
def test_fused_and_written_out_are_one_function(seed: int) -> None:
    query_key_value_BLE = made_query_key_value(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    attends_B11L = torch.rand(B, 1, 1, L, generator=generator) < 0.5
    attends_B11L[..., 0] = True

    served, trained = (
        multi_head_attention(query_key_value_BLE, attends_B11L, H, is_training=is_training)
        for is_training in (False, True)
    )

    torch.testing.assert_close(served, trained, rtol=0.0, atol=1e-5)
    everywhere = multi_head_attention(
        query_key_value_BLE, torch.ones_like(attends_B11L), H, is_training=False
    )
    assert (served - everywhere).abs().max() > 0.1  # the masks mattered


@pytest.mark.parametrize("seed", range(2))
def test_padding_moves_next_to_nothing_in_bf16(seed: int) -> None:
    """The fused kernel rounds one value in 70 otherwise, one in 400 where bf16 is emulated."""
    heads, length, padded_length = 4, 58, 65
    generator = torch.Generator().manual_seed(seed)
    padded_BLE = torch.randn(8, padded_length, 3 * 192, generator=generator).bfloat16()
    attends_B11L = (torch.arange(padded_length) < length).expand(8, 1, 1, -1)

    alone_BLD = multi_head_attention(
        padded_BLE[:, :length], attends_B11L[..., :length], heads, is_training=False
    )
    beside_padding_BLD = multi_head_attention(padded_BLE, attends_B11L, heads, is_training=False)

    moved = alone_BLD != beside_padding_BLD[:, :length]
    assert moved.float().mean() < 5e-4


@pytest.mark.parametrize("is_training", [False, True])
def test_attention_by_hand(is_training: bool) -> None:
    query_key_value_BLE = torch.tensor([[[1.0, 1.0, 10.0], [0.0, 3.0, 20.0], [2.0, 9.0, 900.0]]])
    attends_B11L = torch.tensor([[[[True, True, False]]]])

    read = multi_head_attention(query_key_value_BLE, attends_B11L, 1, is_training=is_training)

    weights = [torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]), torch.tensor([2.0, 6.0])]
    expected = [float(scores.softmax(0) @ torch.tensor([10.0, 20.0])) for scores in weights]
    assert read[0, :, 0].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("is_training", [False, True])
def test_attention_to_nothing_is_finite(is_training: bool) -> None:
    nothing_B11L = torch.zeros(B, 1, 1, L, dtype=torch.bool)

    read = multi_head_attention(made_query_key_value(0), nothing_B11L, H, is_training=is_training)

    assert read.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_applies_to_weights_and_only_in_training(dtype: torch.dtype) -> None:
    attends_B11L = torch.ones(B, 1, 1, L, dtype=torch.bool)

    trained, served = (
        multi_head_attention(
            made_query_key_value(0).to(dtype),
            attends_B11L,
            H,
            is_training=is_training,
            dropout=1.0,
        )
        for is_training in (True, False)
    )

    assert (trained == 0).all()
    assert (served != 0).all()
