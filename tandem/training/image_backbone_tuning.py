"""A stage of training on a corpus: the image backbone learns it with the BE, then is frozen.

What a frozen backbone does not tell apart no encoder behind it can. So pixels go through both, and
the gradient of the in-batch softmax comes back through both; the rounds that follow read image
tokens that are computed once, as ever.

Shapes: B rows, H W pixels, D width.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.optim import AdamW

from tandem.corpus.records import Record
from tandem.model_io.special_tokens import special_tokens
from tandem.modeling.image_backbone import ImageBackbone
from tandem.modeling.joint_model import JointModel
from tandem.training.data.batches import tokenize
from tandem.training.data.pair_pool import draw_families, draw_member
from tandem.training.data.record_pairs import RecordPairs
from tandem.training.losses import in_batch_softmax_loss
from tandem.training.optimisation import check_loss, decayed_groups, step, warm_up_then_linear
from tandem.training.run import Run, restore

BACKBONE_STAGE = "backbone"


def check_tunable(model: JointModel, run: Run) -> None:
    """Raises ValueError where no steps of BE and image backbone together can be."""
    if not run.recipe.trains_be:
        raise ValueError(
            "the image backbone learns together with the BE, and this run trains the CE alone; "
            "begin with a BE or a joint one, take another image source, or leave the backbone's "
            "steps out"
        )
    if not isinstance(model.image_backbone, ImageBackbone):
        raise ValueError(
            f"image tokens of {model.config.image_source} come from nothing that learns here; "
            "leave the backbone's steps out"
        )


def tune_image_backbone(
    model: JointModel,
    source: RecordPairs,
    records: Sequence[Record],
    pixels_of: Callable[[Record], NDArray[np.uint8]],
    tokenizer: Tokenizer,
    run: Run,
) -> None:
    """Trains image backbone and BE for the recipe's `backbone_step_count`; freezes the former.

    `source` numbers the `records`; `pixels_of` gives a record's uint8 [H, W, 3], and what it raises
    is raised. One process does it, and gives it to the others: batch norm reads whole batches. A
    run that stopped goes on from its state, here or behind this stage.
    """
    assert isinstance(model.image_backbone, ImageBackbone), "check_tunable says so"
    model.image_backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.processes.is_first:
        _tune(model, model.image_backbone, source, records, pixels_of, tokenizer, run)
    run.processes.take_from_first(model)
    model.eval()
    model.image_backbone.requires_grad_(False)


def _tune(
    model: JointModel,
    backbone: ImageBackbone,
    source: RecordPairs,
    records: Sequence[Record],
    pixels_of: Callable[[Record], NDArray[np.uint8]],
    tokenizer: Tokenizer,
    run: Run,
) -> None:
    recipe, step_count, compute = run.recipe, run.recipe.backbone_step_count, run.compute
    cls_id = special_tokens(tokenizer).cls_id
    rng = random.Random(f"backbone/{recipe.seed}")
    backbone.requires_grad_(True)
    optimiser = AdamW(
        [
            *decayed_groups(model.joint_encoder, recipe.weight_decay),
            {"params": list(backbone.parameters()), "lr": recipe.backbone_learning_rate},
        ],
        recipe.learning_rate,
    )
    schedule = warm_up_then_linear(optimiser, step_count)
    modules = {"backbone": backbone, "encoder": model.joint_encoder}
    done = 0
    if later := run.found("encoder"):
        for name, module in modules.items():
            module.load_state_dict(later.modules[name])
        done = step_count
    elif state := run.found(BACKBONE_STAGE):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
    model.train()
    run.progress(BACKBONE_STAGE, done, step_count, "")
    for number in range(done + 1, step_count + 1):
        families = draw_families(source, rng, recipe.backbone_batch_size)
        members = [draw_member(source, family, rng) for family in families]
        captions = [source.caption(member, rng) for member in members]
        texts = compute.put(tokenize(tokenizer, captions, model.config.max_text_tokens))
        pixels_BHWC = compute.put(
            torch.from_numpy(np.stack([pixels_of(records[member]) for member in members]))
        )
        with compute.autocast():
            texts_BD = model.embed_texts(texts.ids, texts.mask)
            images_BD = model.embed_images(backbone.tokens(pixels_BHWC), cls_id)
        loss = in_batch_softmax_loss(texts_BD, images_BD, recipe.softmax_temperature)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        with run.place(BACKBONE_STAGE, number, step_count).named():
            check_loss("BE", loss.item())
            step(optimiser, recipe.gradient_clip_norm)
        schedule.step()
        if number % 10 == 0 or number == step_count:
            run.progress(BACKBONE_STAGE, number, step_count, f"BE loss {loss.item():.3f}")
        if run.keeps_after(number) or number == step_count:
            place = run.place(BACKBONE_STAGE, number, step_count)
            with place.named():
                place.check_weights(modules.values())
        run.keep(BACKBONE_STAGE, number, modules, optimiser, schedule, rng)
