"""Lower layers in which text and image do not see each other (PreTTR, MacAvaney et al. 2020).

What such a layer makes of an image hangs on the image alone, so it is computed once, at ingest, and
the cross-encoder of a search begins above it. The weights are those that read the text too.

Shapes: B rows, R image tokens, L positions, D width.
"""

from collections.abc import Iterable

from torch import Tensor, nn


def through(layers: Iterable[nn.Module], hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns what the layers make of hidden states, each position reading those that count."""
    attends_B11L = mask_BL.bool()[:, None, None, :]
    for layer in layers:
        hidden_BLD = layer(hidden_BLD, attends_B11L)
    return hidden_BLD


def as_stored(image_BRD: Tensor, apart_layer_count: int, *, is_training: bool) -> Tensor:
    """Returns an image's hidden states behind the layers apart as they come out of an index.

    That is rounded to float16; but not in training, whose small gradients that would round to
    nothing, nor without layers apart, where other tokens are stored.
    """
    if is_training or not apart_layer_count:
        return image_BRD
    return image_BRD.half().to(image_BRD.dtype)
