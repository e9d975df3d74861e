"""Trains the matcher of two towers after the rounds; the towers that embed no longer learn.

Parts that the matcher shares with them are frozen too, and need no gradient.

The matcher never sees the embeddings' similarity, so that it learns what they do not know. At the
end, the weight of their cosine in a pair's logit is chosen on the dev pictures.

Shapes: B pictures with one caption each, N pictures, Q dev texts, T text tokens, R image tokens,
D width of states.
"""

import copy
import random
from dataclasses import replace

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from tandem.lab.training.data.batches import ImageTextBatch, MatchBatch
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.dev_recall import DevRecall, dev_recall, similarity
from tandem.lab.training.optimisation import (
    check_loss,
    recipe_optimiser,
    recipe_schedule,
    step,
    tower_groups,
)
from tandem.lab.training.recipes.recipe import Towers
from tandem.lab.training.runs.run import Run, restore
from tandem.lab.training.stages.masked_words import mask_id, with_hidden_words
from tandem.lab.training.stages.rounds import made_by
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.modeling.towers.two_towers import TwoTowers
from tandem.modeling.towers.word_grid_matcher import WordGridMatcher

MATCHER_STAGE = "matcher"

_EMBEDDED_AT_ONCE = 256
_SCORED_AT_ONCE = 8
# Multiples of the ratio of the two scores' spreads that the cosine's weight is chosen from.
_WEIGHTS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def train_matcher(
    model: JointModel, pool: PairPool, dev: ImageTextBatch, tokenizer: Tokenizer, run: Run
) -> DevRecall:
    """Trains the matcher of the run's best checkpoint, and keeps both; returns the dev recalls."""
    recipe = run.recipe
    assert isinstance(recipe, Towers), "only two towers have a matcher"
    step_count = recipe.matcher_step_count
    # The state keeps the backbone that made the image tokens: a checkpoint's weights are rounded.
    learned = {"backbone": copy.deepcopy(model.image_backbone)} if recipe.learns_backbone else {}
    model.load_state_dict(load_checkpoint(run.folder).model.state_dict())
    encoder, _ = _parts(model)
    encoder.start_tops()
    model.requires_grad_(False)
    model.eval()
    for part in encoder.matcher_parts():
        part.requires_grad_(True).train()
    dev = run.compute.put(dev)
    groups = tower_groups(encoder, recipe, recipe.matcher_learning_rate)
    optimiser = recipe_optimiser(groups, recipe.matcher_learning_rate, recipe)
    schedule = recipe_schedule(optimiser, step_count, recipe)
    rng = random.Random(f"matcher/{recipe.seed}")
    modules = {f"matcher {n}": part for n, part in enumerate(encoder.matcher_parts())}
    hidden_id = mask_id(tokenizer)
    done = 0
    if state := run.found(MATCHER_STAGE):
        restore(state, modules, optimiser, schedule, rng)
        done = state.step
    run.progress(MATCHER_STAGE, done, step_count, "")
    neighbours_NK = _neighbours(encoder, pool, recipe, run)
    for number in range(done + 1, step_count + 1):
        place = run.place(MATCHER_STAGE, number, step_count)
        optimiser.zero_grad(set_to_none=True)
        drawn = pool.neighbour_batch(rng, recipe.matcher_batch_size, neighbours_NK)
        texts = with_hidden_words(drawn.texts, recipe.word_drop_share, hidden_id, rng)
        batch = run.compute.put(replace(drawn, texts=texts))
        loss = matching_loss(_logits(encoder, batch, run), batch.groups)
        loss.backward()
        with place.named():
            check_loss("matcher", loss.item())
            step(optimiser, recipe.gradient_clip_norm)
        schedule.step()
        if number % 10 == 0 or number == step_count:
            run.progress(MATCHER_STAGE, number, step_count, f"loss {loss.item():.3f}")
        if run.keeps_after(number) or number == step_count:
            with place.named():
                place.check_weights(modules.values())
        run.keep(MATCHER_STAGE, number, {**modules, **learned}, optimiser, schedule, rng)
    model.eval()
    with run.compute.autocast():
        weight = _choose_cosine_weight(model, dev, tokenizer)
        recall = dev_recall(model, dev, special_tokens(tokenizer).cls_id, recipe, scores_pairs=True)
    run.progress(MATCHER_STAGE, step_count, step_count, f"dev {recall}, cosine x {weight:.3g}")
    if run.processes.is_first:
        save_checkpoint(
            run.folder,
            model,
            tokenizer,
            made_by(run, recipe.round_count, recall),
            trained_pictures=run.trained_pictures,
        )
    return recall


def keep_unmatched(model: JointModel, tokenizer: Tokenizer, run: Run, recall: DevRecall) -> None:
    """Writes the checkpoint of towers that are trained already, for their matcher to begin with."""
    if run.processes.is_first:
        save_checkpoint(run.folder, model, tokenizer, made_by(run, 0, recall))
    run.processes.wait()


def matching_loss(logits_BB: Tensor, groups_B: Tensor) -> Tensor:
    """Returns the symmetric cross-entropy of each caption against all pictures, and the reverse.

    logits_BB: picture by caption, own pairs on the diagonal. Other pairs of one group are left out:
    one's caption may be true of the other's picture.
    """
    same_BB = groups_B[:, None] == groups_B[None, :]
    same_BB = same_BB & ~torch.eye(len(groups_B), dtype=torch.bool, device=groups_B.device)
    scored_BB = logits_BB.masked_fill(same_BB, -1e4)
    target_B = torch.arange(len(scored_BB), device=scored_BB.device)
    return (F.cross_entropy(scored_BB, target_B) + F.cross_entropy(scored_BB.T, target_B)) / 2


def _parts(model: JointModel) -> tuple[TwoTowers, WordGridMatcher]:
    encoder = model.joint_encoder
    assert isinstance(encoder, TwoTowers), "only two towers have a matcher"
    assert encoder.matcher is not None, "the recipe's steps need one"
    return encoder, encoder.matcher


def _logits(encoder: TwoTowers, batch: MatchBatch, run: Run) -> Tensor:
    assert encoder.matcher is not None, "this stage trains it"
    with run.compute.autocast():
        words_BTD, grid_BRD, mask_BR = encoder.matcher_states(
            batch.texts.ids, batch.texts.mask, batch.tokens, batch.image_mask
        )
        words = encoder.matcher.words(words_BTD, batch.texts.mask)
        logits_BB = encoder.matcher.every(words, encoder.matcher.grid(grid_BRD, mask_BR))
    return logits_BB.float()


@torch.no_grad()
def _neighbours(encoder: TwoTowers, pool: PairPool, recipe: Towers, run: Run) -> Tensor:
    """Returns the pictures whose captions are most similar, [N, K], without the picture itself."""
    count = min(recipe.matcher_neighbour_count - 1, len(pool) - 1)
    if not count:  # all are drawn at random: no caption needs an embedding
        return torch.empty((len(pool), 0), dtype=torch.int64)
    rng = random.Random(f"matcher/neighbours/{recipe.seed}")
    embeddings = []
    for texts in pool.captions_in_order(rng, _EMBEDDED_AT_ONCE):
        placed = run.compute.put(texts)
        with run.compute.autocast():
            embeddings.append(encoder.text(placed.ids, placed.mask)[0].float())
    texts_ND = torch.cat(embeddings)
    nearest = []
    for start in range(0, len(texts_ND), _EMBEDDED_AT_ONCE):
        likeness = texts_ND[start : start + _EMBEDDED_AT_ONCE] @ texts_ND.T
        likeness[:, start : start + len(likeness)].fill_diagonal_(-2.0)
        nearest.append(likeness.topk(count, dim=1).indices.cpu())
    return torch.cat(nearest)


@torch.inference_mode()
def _choose_cosine_weight(model: JointModel, dev: ImageTextBatch, tokenizer: Tokenizer) -> float:
    """Sets and returns the cosine's weight of the best mean reciprocal rank, both directions."""
    encoder, matcher = _parts(model)
    logits_QQ = _dev_logits(encoder, matcher, dev)
    cosines_QQ = similarity(model, dev, special_tokens(tokenizer).cls_id)
    ratio = (logits_QQ.std() / cosines_QQ.std()).item()
    weights = [ratio * multiple for multiple in _WEIGHTS]
    ranks = [_reciprocal_rank(logits_QQ + weight * cosines_QQ) for weight in weights]
    best = weights[max(range(len(weights)), key=ranks.__getitem__)]
    encoder.pair.cosine_weight.fill_(best)
    return best


def _dev_logits(encoder: TwoTowers, matcher: WordGridMatcher, dev: ImageTextBatch) -> Tensor:
    whole = (dev.texts.ids, dev.texts.mask, dev.tokens, dev.image_mask)
    some = zip(*(each.split(_SCORED_AT_ONCE) for each in whole), strict=True)
    parts = [encoder.matcher_states(*each) for each in some]
    words = matcher.words(torch.cat([states for states, _, _ in parts]), dev.texts.mask)
    rows = [matcher.every(words, matcher.grid(states, mask)) for _, states, mask in parts]
    return torch.cat(rows).T.float()


def _reciprocal_rank(scores_QQ: Tensor) -> float:
    own_Q = scores_QQ.diagonal()
    ranks = [1 + (each > own_Q[:, None]).sum(1) for each in (scores_QQ, scores_QQ.T)]
    return torch.cat(ranks).double().reciprocal().mean().item()
