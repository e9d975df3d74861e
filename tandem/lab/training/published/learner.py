"""Gives a published model the interface of JointModel, so that the rounds train it.

Its image tokens are contents: pixels uint8 [B, H, W, 3], or a detector's regions float16 [B, R, D].

Shapes: B batch, T text tokens, R regions or image tokens, D width, d dimensions.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tandem.lab.training.data.batches import RuledTexts
from tandem.lab.training.recipes.recipe import CooperativeRecipe
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import MODULES, published_folder
from tandem.modeling.stored_weights import listed

# Pictures that are read at once on dev: attention over 256 of 577 tokens takes 5 GB.
_READ_AT_ONCE = 32


class PublishedLearner(nn.Module):
    """Trains the modules of a published model, all weights that one of them reads."""

    def __init__(self, folder: Path, published: PublishedModel, recipe: CooperativeRecipe) -> None:
        """Raises ValueError for a use that the model does not have, and one that is only read."""
        super().__init__()
        _check_uses(folder, published, recipe)
        assert published.weights is not None, "checked"
        self.folder, self.published_weights = folder, published.weights
        towers, pairs = published.bi_encoder, published.cross_encoder
        self._region_joint = joint = published.region_joint
        parts = {
            "joint": joint and joint.joint,
            "embed_text": towers and recipe.trains_be and towers.embed_text,
            "embed_image": towers and towers.embed_image,
            "image_tokens": pairs and pairs.image_tokens,
            "score_pair": pairs and recipe.trains_ce and pairs.score_pair,
        }
        self.joint_encoder = nn.ModuleDict({name: part for name, part in parts.items() if part})
        self.image_backbone = nn.Identity()
        either = joint or (pairs if recipe.trains_ce else towers)
        assert either is not None, "it has the uses that are trained"
        self._first_id = pairs.text.first_id if pairs else None
        self.text = replace(either.text, first_id=None)
        self.config = joint.regions if joint else either.image  # type: ignore[union-attr]
        self.notes = published.notes
        if published.unused:
            self.notes += (f"Weights of other tasks are left out: {listed(published.unused)}.",)
        self._learned: set[nn.Parameter] = set()
        for each in self.parameters():
            # Its own memory: files are mapped, and several weights may share a mapping.
            each.data = each.data.clone()
            each.requires_grad_(True).register_post_accumulate_grad_hook(self._learned.add)
        for module in joint.joint.modules() if joint else ():
            if isinstance(module, nn.Dropout):
                module.p = recipe.dropout  # transformers' classes have their configuration's
        for layer in _layers(self) if recipe.has_checkpointing else ():
            run = partial(checkpoint, layer.forward, use_reentrant=False)
            layer.forward = run

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, d]."""
        if (joint := self._region_joint) is None:
            return _unit(self.joint_encoder["embed_text"](input_ids_BT, text_mask_BT))
        shape = (len(input_ids_BT), 1, joint.regions.vector_width)
        nothing_B1D = torch.zeros(shape, device=input_ids_BT.device)
        absent_B1 = torch.zeros(shape[:2], dtype=torch.int64, device=input_ids_BT.device)
        return _unit(joint.joint(input_ids_BT, text_mask_BT, nothing_B1D, absent_B1)[0])

    def embed_images(self, contents: Tensor, cls_id: int, mask_BR: Tensor) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, d]; the model has its own `cls_id`."""
        if (joint := self._region_joint) is None:
            embedded = self.joint_encoder["embed_image"](contents)
            return _unit(embedded[0] if isinstance(embedded, tuple) else embedded)
        ids_B1 = torch.full((len(contents), 1), joint.cls_id, device=contents.device)
        return _unit(joint.joint(ids_B1, torch.ones_like(ids_B1), contents, mask_BR)[0])

    def match_logits(
        self, input_ids_BT: Tensor, text_mask_BT: Tensor, contents: Tensor, mask_BR: Tensor
    ) -> Tensor:
        """Returns the cross-encoder's logits, float32 [B]; `contents` may be `pair_tokens`."""
        given = (input_ids_BT, text_mask_BT, contents, mask_BR)
        if not self.training and len(contents) > _READ_AT_ONCE:
            parts = zip(*(each.split(_READ_AT_ONCE) for each in given), strict=True)
            return torch.cat([self.match_logits(*part) for part in parts])
        if (joint := self._region_joint) is not None:
            logits_B1: Tensor = joint.joint(input_ids_BT, text_mask_BT, contents, mask_BR)[1]
            return logits_B1[:, 0].float()
        if self._first_id is not None:
            input_ids_BT = input_ids_BT.clone()
            input_ids_BT[:, 0] = self._first_id
        tokens_BRD = contents if contents.is_floating_point() else self._tokens(contents)
        all_BR = torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)
        logits_B1 = self.joint_encoder["score_pair"](input_ids_BT, text_mask_BT, tokens_BRD, all_BR)
        return logits_B1[:, 0].float()

    @torch.inference_mode()
    def pair_tokens(self, contents: Tensor) -> Tensor:
        """Returns what `match_logits` reads of pictures that are scored with many texts."""
        if contents.is_floating_point():
            return contents
        parts = [self._tokens(part) for part in contents.split(_READ_AT_ONCE)]
        with torch.autocast(contents.device.type, enabled=False):  # bf16's cannot join float16
            return torch.cat(parts)

    def unlearned(self) -> list[str]:
        """Returns the published names of the weights that have got no gradient so far."""
        learned = {each.untyped_storage().data_ptr() for each in self._learned}
        return [
            name
            for name, weight in self.published_weights().items()
            if weight.untyped_storage().data_ptr() not in learned
        ]

    def _tokens(self, pixels_BHW3: Tensor) -> Tensor:
        if "image_tokens" in self.joint_encoder:
            tokens_BRD: Tensor = self.joint_encoder["image_tokens"](pixels_BHW3)
            return tokens_BRD
        _, tokens_BRD = self.joint_encoder["embed_image"](pixels_BHW3)
        return tokens_BRD


def starting_learner(recipe: CooperativeRecipe) -> tuple[PublishedLearner, RuledTexts]:
    """Returns the recipe's published model before its first step, with what splits its texts.

    Raises PublishedCheckpointInvalid for a folder of no family, with missing or odd weights.
    """
    folder = published_folder(recipe.pretrained)
    published = read_published_model(folder, makes_head=recipe.trains_ce)
    learner = PublishedLearner(folder, published, recipe)
    [tokenizer] = published.tokenizers.values()
    return learner, RuledTexts(tokenizer, learner.text)


def published_shape(recipe: CooperativeRecipe) -> CooperativeRecipe:
    """Returns the recipe with the folder's digest and what of its shape a recipe names."""
    published = read_published_model(published_folder(recipe.pretrained), makes_head=True)
    part = published.region_joint or published.bi_encoder or published.cross_encoder
    assert part is not None, "every model has one of them"
    digests = repr(sorted(published.files_sha256.items()))
    return replace(
        recipe,
        pretrained_weights_sha256=sha256(digests.encode()).hexdigest(),
        vocabulary_size=part.text.vocabulary_size,
    )


def _check_uses(folder: Path, published: PublishedModel, recipe: CooperativeRecipe) -> None:
    joint, family = published.region_joint, published.family
    if published.weights is None or (folder / MODULES).is_file():
        raise ValueError(
            f"{folder}: its format is only read, not written; save it with transformers' "
            "save_pretrained, or take the folder in it that has config.json and the weights"
        )
    if recipe.trains_be and joint is None and published.bi_encoder is None:
        raise ValueError(f"{family} embeds nothing, so it is a CE alone: --set mode=ce")
    has_pairs = joint.has_pairs if joint is not None else published.cross_encoder is not None
    if recipe.trains_ce and not has_pairs:
        raise ValueError(f"{family} has no head for pairs, so it is a BE alone: --set mode=be")


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yields the layers of every encoder: lists of modules of one class."""
    for each in module.modules():
        if isinstance(each, nn.ModuleList) and len({type(layer) for layer in each}) == 1:
            yield from each


def _unit(embeddings_Bd: Tensor) -> Tensor:
    # Again, in float32: in bf16 neighbours would tie.
    return F.normalize(embeddings_Bd.float(), dim=-1)
