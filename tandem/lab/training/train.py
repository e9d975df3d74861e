"""Trains a joint model: from a recipe and a source of captioned pictures to a checkpoint folder.

Read it top to bottom: start from random weights, a published encoder or a checkpoint; read the
source; teach the image backbone (backbone_stage.py) and freeze it; compute every picture's image
tokens once; then let BE and CE take turns on one set of weights (rounds.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tandem.lab.training.data.batches import ImageTextBatch, RuledTexts, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.dev_recall import DevRecall
from tandem.lab.training.first_recall import FirstRecall, first_recall
from tandem.lab.training.processes import ALONE, Processes
from tandem.lab.training.published.learner import PublishedLearner, starting_learner
from tandem.lab.training.published.trained_folder import check_own_folder
from tandem.lab.training.recipes.recipe import (
    CooperativeRecipe,
    MatcherRecipe,
    Recipe,
    Rounds,
    Towers,
    ZooRecipe,
)
from tandem.lab.training.runs.run import (
    NOTE_STAGE,
    Progress,
    Run,
    check_init_stays,
    no_progress,
)
from tandem.lab.training.sources.record_source import RecordSource
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.sources.source import TrainingData
from tandem.lab.training.stages.backbone_stage import BACKBONE_STAGE, train_image_backbone
from tandem.lab.training.stages.matcher_stage import MATCHER_STAGE, keep_unmatched, train_matcher
from tandem.lab.training.stages.rounds import EncoderRounds, train_in_rounds
from tandem.lab.training.starting_model import in_its_shape, starting_model
from tandem.lab.training.zoo_training import starting_zoo_model, train_zoo
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.joint_model import JointModel

_CPU = torch.device("cpu")

Start = Callable[[Recipe, Path, Callable[[], Tokenizer]], tuple[JointModel | ZooModel, Tokenizer]]
TrainingSource = SceneSource | RecordSource


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Holds a run's recalls, and its model after the last step, which need not be the best."""

    before: FirstRecall
    best: DevRecall
    model: JointModel | ZooModel | PublishedLearner


def train(  # noqa: PLR0913
    recipe: Recipe,
    source: TrainingSource,
    folder: Path,
    progress: Progress,
    *,
    init: Path | None = None,
    resume: bool = False,
    state_every_step_count: int = 50,
    device: torch.device = _CPU,
    processes: Processes = ALONE,
) -> RunEnd:
    """Trains by the recipe on the source, and keeps the best checkpoint by dev score.

    A recipe that begins with a checkpoint begins with `init`, by default the bundled one. `folder`
    receives the checkpoint, the loss curve and, until the run ends, its state every
    `state_every_step_count` steps of a stage. With `resume` a stopped run continues from its state
    and ends with the weights of an uninterrupted run; without a state it starts over. The same
    recipe on the same machine's CPU gives the same weights. Of several processes, only the first
    writes files and reports progress.

    Raises ValueError for a recipe that this source, this many processes or `folder` cannot serve,
    RunStateInvalid for the state of another recipe, and LossCurveIncomplete where the curve ends
    before the state.
    """
    init = init or default_checkpoint()
    if recipe.begins_with_checkpoint:
        check_init_stays(init, folder)
    if isinstance(recipe, ZooRecipe) and processes.count > 1:  # all would draw the same batches
        raise ValueError(
            f"recipe {recipe.name} trains in one process, and {processes.count} were started; "
            "start it without torchrun"
        )
    # Where the run begins: shape, weights and tokenizer.
    recipe = source.shaped(in_its_shape(recipe, init))
    torch.manual_seed(recipe.seed)
    model: JointModel | ZooModel | PublishedLearner
    tokenizer: Tokenizer | RuledTexts
    if isinstance(recipe, CooperativeRecipe):
        model, tokenizer = starting_learner(recipe)
        check_own_folder(folder, model.folder)
    else:
        start: Start = starting_zoo_model if isinstance(recipe, ZooRecipe) else starting_model
        model, tokenizer = start(
            recipe, init, lambda: train_tokenizer(source.texts(recipe), recipe.vocabulary_size)
        )
        tokenizer.encode_special_tokens = True  # a caption that says "[SEP]" means those letters

    # What it reads, and the state of an earlier try.
    data = source.read(
        recipe, model.config, tokenizer, progress if processes.is_first else no_progress
    )
    run = Run(
        data.recipe,
        folder,
        progress,
        state_every=state_every_step_count,
        resume=resume,
        device=device,
        processes=processes,
        skipped_counts=data.skipped_counts,
        trained_pictures=data.all_trained_pictures(init),
    )
    model.to(device)
    if isinstance(model, PublishedLearner) and isinstance(tokenizer, RuledTexts):
        before, best = _train_published(model, data, tokenizer, run)
    elif isinstance(model, ZooModel) and isinstance(tokenizer, Tokenizer):
        before, best = train_zoo(model, data, tokenizer, run)
    else:
        assert isinstance(model, JointModel), "there are three kinds"
        assert isinstance(tokenizer, Tokenizer), "a published model's texts are ruled"
        before, best = _train_encoder(model, data, tokenizer, run)
    run.end(f"{run.seconds():,.0f} s")
    return RunEnd(before, best, model)


def _train_published(
    model: PublishedLearner, data: TrainingData, texts: RuledTexts, run: Run
) -> tuple[FirstRecall, DevRecall]:
    """Returns the recalls before the first step, and those of the best folder."""
    for note in model.notes:
        run.progress(NOTE_STAGE, 0, 0, note)
    dev_images = data.dev.tokens(model.image_backbone, run, "dev")
    numbers = range(len(data.dev_captions))
    dev = ImageTextBatch(texts.batch(data.dev_captions), *dev_images.of(numbers))
    images = data.train.tokens(model.image_backbone, run, "pictures")
    pool = PairPool(data.pairs, images, texts, model.text.max_tokens)
    before = first_recall(model, dev, 0, run, "dev")
    return before, train_in_rounds(EncoderRounds(model, pool, dev, texts, run), run)


def _train_encoder(
    model: JointModel, data: TrainingData, tokenizer: Tokenizer, run: Run
) -> tuple[FirstRecall, DevRecall]:
    """Returns the recalls before the first step, and those of the best checkpoint."""
    recipe = run.recipe
    cls_id = special_tokens(tokenizer).cls_id
    model.image_backbone.eval().requires_grad_(False)
    lesson = data.lesson(model, tokenizer, run) if recipe.learns_backbone else None

    dev_texts = tokenize(tokenizer, data.dev_captions, model.config.max_text_tokens)

    def measured(stage: str) -> tuple[ImageTextBatch, FirstRecall]:
        images = data.dev.tokens(model.image_backbone, run, f"{stage} tokens")
        dev = ImageTextBatch(dev_texts, *images.of(range(len(data.dev_captions))))
        return dev, first_recall(model, dev, cls_id, run, stage)

    # The image backbone learns first; its dev tokens change with it.
    dev, before = measured("dev")
    rounds_begin_with = before
    if lesson:
        if not run.state and isinstance(recipe, Rounds):
            run.progress(BACKBONE_STAGE, 0, recipe.backbone_step_count, f"dev {before}")
        train_image_backbone(model, lesson, run)
        dev, rounds_begin_with = measured("dev with the trained backbone")

    # From here on the backbone is frozen, and BE and CE learn in rounds.
    images = data.train.tokens(model.image_backbone, run, "image tokens")
    pool = PairPool(data.pairs, images, tokenizer, model.config.max_text_tokens, recipe.view_count)
    has_rounds = not isinstance(recipe, MatcherRecipe)
    if has_rounds and not (run.found("encoder") or run.found(MATCHER_STAGE)):
        # A resumed run begins further on, and its model may not have the weights of its state yet.
        run.progress("encoder", 0, recipe.round_count, f"dev {rounds_begin_with}")
    best = None
    if not run.found(MATCHER_STAGE):
        if has_rounds:
            best = train_in_rounds(EncoderRounds(model, pool, dev, tokenizer, run), run)
        else:
            best = rounds_begin_with.recall
            keep_unmatched(model, tokenizer, run, best)
    if (
        isinstance(recipe, Towers) and recipe.matcher_step_count
    ):  # two towers: their matcher learns last
        best = train_matcher(model, pool, dev, tokenizer, run)
    assert best is not None, "a matcher's state is found only where there are steps for it"
    return before, best
