"""Makes random inputs of every kind, batch size and length that a Triton model is called with.

Shapes: B batch, H W pixels, T text tokens, R image tokens, D token width.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tandem.model_io.repository.config_pbtxt import image_rules_of, text_rules_of
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.served_functions import Role

# Shorter than any length that is served: a trace must not depend on the lengths of its example.
_EXAMPLE_TEXT_LENGTH, _EXAMPLE_IMAGE_LENGTH = 7, 5


def example_inputs(manifest: Manifest, name: str) -> tuple[Tensor, ...]:
    """Returns the inputs of a model that its trace follows, of two rows."""
    lengths, image_length = text_rules_of(manifest, name).lengths, manifest.image_token_count
    # The late blocks of two towers are a network over the whole grid.
    if manifest.models[name].is_joint and manifest.family != "two_towers":
        image_length = min(_EXAMPLE_IMAGE_LENGTH, image_length)
    text_length = lengths[0] if len(lengths) == 1 else min(_EXAMPLE_TEXT_LENGTH, lengths[-1])
    return _inputs(manifest, name, 2, text_length, image_length)


def served_inputs(manifest: Manifest, name: str) -> Iterator[tuple[Tensor, ...]]:
    """Yields inputs of a model in all served lengths, in sizes other than the example's."""
    model, image_length = manifest.models[name], manifest.image_token_count
    if model.reads_pixels:
        for batch in (1, 3):
            yield (sample_pixels(manifest, batch, name),)
        return
    for batch in (1, 5):
        for text_length in text_rules_of(manifest, name).lengths:
            if model.is_joint:
                ids, mask, tokens, present = _inputs(manifest, name, batch, text_length, 1)
                yield ids, mask, torch.zeros_like(tokens), torch.zeros_like(present)
            yield _inputs(manifest, name, batch, text_length, image_length)
        if model.is_joint:
            yield _inputs(manifest, name, batch, 1, image_length)


def sample_pixels(manifest: Manifest, batch: int, name: str | None = None) -> Tensor:
    """Returns random pictures, uint8 [B, H, W, 3], as the model of that name reads them."""
    size = (image_rules_of(manifest, name) if name else manifest.picture).size
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)


def _inputs(
    manifest: Manifest, name: str, batch: int, text_length: int, image_length: int
) -> tuple[Tensor, ...]:
    """Returns random inputs; each text after the first is padded in its second half."""
    model, rules = manifest.models[name], text_rules_of(manifest, name)
    if model.reads_pixels:
        return (sample_pixels(manifest, batch, name),)
    generator = torch.Generator().manual_seed(batch * 1000 + text_length)
    ids = torch.randint(
        0, rules.vocabulary_size, (batch, text_length), dtype=torch.int64, generator=generator
    )
    text_mask = torch.ones_like(ids)
    if not rules.reads_padding:
        text_mask[1:, max(1, text_length // 2) :] = 0
    tokens = torch.randn(batch, image_length, max(1, manifest.token_width), generator=generator)
    made = {
        Role.TOKEN_IDS: ids,
        Role.TEXT_MASK: text_mask,
        Role.IMAGE_TOKENS: tokens.half(),
        Role.IMAGE_MASK: torch.ones(batch, image_length, dtype=torch.int64),
    }
    return tuple(made[role] for role in model.inputs)
