"""Trains a CLIP and a BLIP of a few million weights on emoji, in transformers' own classes.

They are saved as published models are, so that the whole path of a foreign model can be measured:
from a folder in the hub's layout to recall over gRPC. Shapes: B batch, T text tokens, S pixels per
side.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.support.emoji_batches import EmojiBatches
from tandem.training.data.caption_tokenizer import train_tokenizer

if TYPE_CHECKING:
    # Imported where it is used: it takes three seconds, and every worker collects every test.
    from transformers import BlipConfig, BlipForImageTextRetrieval, CLIPConfig, CLIPModel

SIZE = 64
_WIDTH, _PATCH, _HEADS = 128, 16, 4
_VISION_LAYERS, _TEXT_LAYERS = 3, 3
_EMBEDDING = 128
_WORDS = 4_000
_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
# CLIP's first and last token; the last is its padding too.
_BEGIN, _END = "<|startoftext|>", "<|endoftext|>"
# How CLIP cuts a text into words.
_CLIP_WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
# The two tokens that BLIP adds behind BERT's words.
_DECODE, _ENCODE = "[DEC]", "[ENC]"
# Of BLIP's steps, those without ITM; and of a batch, the pairs that ITM reads.
_CONTRAST_SHARE, _MATCHED_SHARE = 0.3, 0.4
# Candidates of a text or a picture where ITM chooses among them: its own, and others.
_CANDIDATES = 6
# Tokens of a text in training; few captions have more.
_LONGEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how fast a model is trained."""

    seed: int
    step_count: int
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    hard_share: float = 0.0
    """Of a BLIP that continues: the share of ITM's negatives that ITC finds hard."""
    has_both_ways: bool = False
    """Of a BLIP that continues: whether ITM also chooses among the texts of a picture."""


def train_clip(folder: Path, plan: Plan, batches: EmojiBatches) -> float:
    """Trains a CLIP and saves it into `folder`; returns the mean loss of its last steps."""
    from transformers import CLIPModel

    torch.manual_seed(plan.seed)
    tokenizer = _clip_tokenizer(batches.all_captions())
    model = CLIPModel(_clip_config(tokenizer))
    end = _id(tokenizer, _END)

    def loss(pixels: Tensor, texts: Sequence[str]) -> Tensor:
        ids, mask = _rows(tokenizer, texts, end)
        output = model(input_ids=ids, attention_mask=mask, pixel_values=_normal(pixels))
        return _contrast(output.logits_per_text)

    last = _trained(model, plan, batches, loss)
    _save(model, tokenizer, folder)
    _write(folder / "preprocessor_config.json", _processor("CLIPImageProcessor", is_cropped=True))
    special = {"bos_token": _BEGIN, "eos_token": _END, "unk_token": _END, "pad_token": _END}
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, **special},
    )
    return last


def train_blip(folder: Path, plan: Plan, batches: EmojiBatches, start: Path) -> float:
    """Trains a BLIP and saves it into `folder`; returns the mean loss of its last steps.

    As its authors do: from a trained image tower, that of the CLIP in `start`, or from the BLIP in
    `start`; contrast (ITC) over [CLS]; and matching (ITM) with [ENC] in its place, against the
    negatives that ITC finds hard. To save time ITM begins once ITC has learned something, and reads
    a part of each batch. From a BLIP it reads all of it, and negatives by chance at first: against
    the hard ones alone ITM stays at chance for longer than minutes.
    """
    from transformers import BlipForImageTextRetrieval, CLIPModel

    torch.manual_seed(plan.seed)
    tokenizer = train_tokenizer(batches.all_captions(), _WORDS)
    words = tokenizer.get_vocab_size()
    has_contrast = json.loads((start / "config.json").read_text())["model_type"] == "blip"
    if has_contrast:
        model = BlipForImageTextRetrieval.from_pretrained(start)
    else:
        model = BlipForImageTextRetrieval(_blip_config(words))
        _take_tower(model, CLIPModel.from_pretrained(start))
    # HF's class has no temperature, which only training needs.
    scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    model.register_parameter("temperature", scale)
    encode_id = words + 1

    steps = itertools.count()

    def loss(pixels: Tensor, texts: Sequence[str]) -> Tensor:
        ids, mask = _rows(tokenizer, texts, 0)
        tokens = model.vision_model(_normal(pixels)).last_hidden_state
        image = functional.normalize(model.vision_proj(tokens[:, 0]), dim=-1)
        read = model.text_encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        text = functional.normalize(model.text_proj(read[:, 0]), dim=-1)
        similarity = text @ image.T * scale.exp().clamp(max=100)
        contrast = _contrast(similarity)
        step = next(steps)
        if step < _CONTRAST_SHARE * plan.step_count and not has_contrast:
            return contrast
        if has_contrast:
            is_of_pictures = plan.has_both_ways and step % 2 == 1
            asked = similarity.detach().T if is_of_pictures else similarity.detach()
            who, candidate = _pairs(negative_weights(asked, plan.hard_share))
            text_of, picture_of = (candidate, who) if is_of_pictures else (who, candidate)
            rows = ids[text_of], mask[text_of]
            return contrast + _ranking(model, rows, tokens[picture_of], len(ids), encode_id)
        part = slice(max(2, int(_MATCHED_SHARE * len(ids))))
        return contrast + _matching(
            model, (ids[part], mask[part]), tokens[part], similarity.detach()[part, part], encode_id
        )

    last = _trained(model, plan, batches, loss)
    del model.temperature
    _save(model, tokenizer, folder)
    processor = _processor("BlipImageProcessor", is_cropped=False)
    _write(folder / "preprocessor_config.json", processor)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "BertTokenizer",
            "model_max_length": 512,
            "pad_token": "[PAD]",
            # The learned vocabulary keeps both, and BERT's class takes both away by default.
            "strip_accents": False,
            "tokenize_chinese_chars": False,
        },
    )
    return last


def negative_weights(similarity_BB: Tensor, hard_share: float) -> Tensor:
    """Returns how likely each picture is drawn for a text: by chance, or as ITC confuses them."""
    batch = len(similarity_BB)
    own_BB = torch.eye(batch, dtype=torch.bool)
    hard_BB = functional.softmax(similarity_BB.masked_fill(own_BB, -math.inf), dim=1)
    by_chance_BB = (~own_BB).float() / (batch - 1)
    return hard_share * hard_BB + (1 - hard_share) * by_chance_BB


def _trained(model: nn.Module, plan: Plan, batches: EmojiBatches, loss: object) -> float:
    assert callable(loss)
    generator = np.random.default_rng(plan.seed)
    decayed = [each for each in model.parameters() if each.ndim >= 2]
    others = [each for each in model.parameters() if each.ndim < 2]
    optimiser = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": plan.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=plan.learning_rate,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, plan.learning_rate, plan.step_count, pct_start=0.1
    )
    model.train()
    losses = []
    for step in range(plan.step_count):
        value = loss(*batches.draw(generator, plan.batch))
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(value.item())
        if step % 50 == 49:
            told = f"step {step + 1} of {plan.step_count}: loss {np.mean(losses[-50:]):.3f}"
            print(told, flush=True)
    model.eval()
    return float(np.mean(losses[-50:]))


def _matching(
    model: BlipForImageTextRetrieval,
    rows: tuple[Tensor, Tensor],
    tokens: Tensor,
    similarity_BB: Tensor,
    encode_id: int,
) -> Tensor:
    """Returns the loss of ITM: each pair, its text with a hard picture, its picture with a text."""
    ids, mask = rows
    batch = len(ids)
    weights_BB = functional.softmax(similarity_BB, dim=1) + 1e-4
    weights_BB.fill_diagonal_(0)
    other_picture = torch.multinomial(weights_BB, 1).flatten()
    weights_BB = functional.softmax(similarity_BB.T, dim=1) + 1e-4
    weights_BB.fill_diagonal_(0)
    other_text = torch.multinomial(weights_BB, 1).flatten()
    ids = ids.clone()
    ids[:, 0] = encode_id
    read = model.text_encoder(
        input_ids=torch.cat([ids, ids, ids[other_text]]),
        attention_mask=torch.cat([mask, mask, mask[other_text]]),
        encoder_hidden_states=torch.cat([tokens, tokens[other_picture], tokens]),
    ).last_hidden_state
    target = torch.zeros(3 * batch, dtype=torch.int64)
    target[:batch] = 1
    return functional.cross_entropy(model.itm_head(read[:, 0]), target)


def _pairs(weights_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Returns who is asked and the candidate of each pair, its own first: [B * candidates]."""
    batch = len(weights_BB)
    own = torch.arange(batch)[:, None]
    others = torch.multinomial(weights_BB, min(_CANDIDATES, batch) - 1)
    candidates = torch.cat([own, others], dim=1)
    return own.expand_as(candidates).flatten(), candidates.flatten()


def _ranking(
    model: BlipForImageTextRetrieval,
    rows: tuple[Tensor, Tensor],
    tokens: Tensor,
    batch: int,
    encode_id: int,
) -> Tensor:
    """Returns the loss of ITM over the candidates of each of `batch`, of which the first matches.

    As pairs that match or not, and as one choice among the candidates. The choice is what teaches
    it from scratch: a logit that says nothing of the candidate gains nothing there.
    """
    ids, mask = rows
    ids = ids.clone()
    ids[:, 0] = encode_id
    read = model.text_encoder(
        input_ids=ids, attention_mask=mask, encoder_hidden_states=tokens
    ).last_hidden_state
    answers = model.itm_head(read[:, 0])
    logits = (answers[:, 1] - answers[:, 0]).view(batch, -1)
    target = torch.zeros_like(logits)
    target[:, 0] = 1
    matching = functional.binary_cross_entropy_with_logits(logits, target)
    return matching + functional.cross_entropy(logits, target.argmax(dim=1))


def _take_tower(model: BlipForImageTextRetrieval, clip: CLIPModel) -> None:
    """Begins with a CLIP's image tower, without the norm that it has before its layers."""
    theirs = clip.vision_model.state_dict()
    own = model.vision_model.state_dict()
    taken = {
        "embeddings.class_embedding": theirs["embeddings.class_embedding"].view(1, 1, -1),
        "embeddings.patch_embedding.weight": theirs["embeddings.patch_embedding.weight"],
        "embeddings.position_embedding": theirs["embeddings.position_embedding.weight"][None],
    }
    for name in own:
        if "self_attn.qkv" in name:
            stem, end = name.split("qkv")
            taken[name] = torch.cat([theirs[f"{stem}{part}_proj{end}"] for part in "qkv"])
        elif name.startswith(("encoder.", "post_layernorm.")):
            taken[name] = theirs[name.replace("self_attn.projection", "self_attn.out_proj")]
    model.vision_model.load_state_dict(own | taken)


def _contrast(similarity_BB: Tensor) -> Tensor:
    target = torch.arange(len(similarity_BB))
    there = functional.cross_entropy(similarity_BB, target)
    return (there + functional.cross_entropy(similarity_BB.T, target)) / 2


def _normal(pixels_BSS3: Tensor) -> Tensor:
    scaled = pixels_BSS3.permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (_MEAN, _STD))
    return (scaled - mean) / std


def _rows(tokenizer: Tokenizer, texts: Sequence[str], pad_id: int) -> tuple[Tensor, Tensor]:
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    # An end token stays at the end of a text that is cut.
    rows = [row if len(row) <= _LONGEST else [*row[: _LONGEST - 1], row[-1]] for row in rows]
    ids = torch.full((len(rows), max(map(len, rows))), pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    return ids, mask


def _clip_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Returns byte pairs as CLIP has them, whose words end in "</w>", learned from `texts`."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=_END))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CLIP_WORDS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=_WORDS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        special_tokens=[_BEGIN, _END],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    begin, end = _id(tokenizer, _BEGIN), _id(tokenizer, _END)
    tokenizer.post_processor = processors.RobertaProcessing(
        (_END, end), (_BEGIN, begin), trim_offsets=False, add_prefix_space=False
    )
    return tokenizer


def _id(tokenizer: Tokenizer, token: str) -> int:
    number = tokenizer.token_to_id(token)
    assert number is not None
    return number


def _clip_config(tokenizer: Tokenizer) -> CLIPConfig:
    from transformers import CLIPConfig

    begin, end = _id(tokenizer, _BEGIN), _id(tokenizer, _END)
    ends = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    text = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 77, **ends}
    return CLIPConfig(
        text_config={**_tower(_TEXT_LAYERS), **text, "projection_dim": _EMBEDDING},
        vision_config={**_tower(_VISION_LAYERS), **_picture(), "projection_dim": _EMBEDDING},
        projection_dim=_EMBEDDING,
    )


def _blip_config(word_count: int) -> BlipConfig:
    from transformers import BlipConfig

    text = {
        "vocab_size": word_count + 2,
        "bos_token_id": word_count,
        "pad_token_id": 0,
        "sep_token_id": 3,
        "encoder_hidden_size": _WIDTH,
        "max_position_embeddings": 64,
    }
    # The default of 1e-10 is for loading weights, not for training.
    vision = {
        **_tower(_VISION_LAYERS),
        **_picture(),
        "initializer_range": 0.02,
        "hidden_act": "quick_gelu",
    }
    return BlipConfig(
        text_config={**_tower(_TEXT_LAYERS), **text},
        vision_config=vision,
        image_text_hidden_size=_EMBEDDING,
    )


def _tower(layer_count: int) -> dict[str, int]:
    return {
        "hidden_size": _WIDTH,
        "intermediate_size": 4 * _WIDTH,
        "num_hidden_layers": layer_count,
        "num_attention_heads": _HEADS,
    }


def _picture() -> dict[str, int]:
    return {"image_size": SIZE, "patch_size": _PATCH}


def _processor(name: str, is_cropped: bool) -> dict[str, object]:
    side = {"shortest_edge": SIZE} if is_cropped else {"height": SIZE, "width": SIZE}
    fields: dict[str, object] = {
        "image_processor_type": name,
        "do_resize": True,
        "size": side,
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": _MEAN,
        "image_std": _STD,
        "do_convert_rgb": True,
    }
    if is_cropped:
        fields |= {"do_center_crop": True, "crop_size": {"height": SIZE, "width": SIZE}}
    return fields


def _save(model: CLIPModel | BlipForImageTextRetrieval, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def _write(path: Path, fields: dict[str, object]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
