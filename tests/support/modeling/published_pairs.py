"""Folders as others publish two-tower models: made here with transformers, tiny and random.

Each function imports transformers itself, which takes three seconds: every worker collects every
test, and few run these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

if TYPE_CHECKING:
    from transformers import CLIPModel, MetaClip2Model, PreTrainedModel, SiglipModel

Model = TypeVar("Model", bound="PreTrainedModel")

SIZE = 32
"""Pixels per side that every tiny tower takes."""
MERGES = [("t", "w"), ("tw", "o</w>"), ("d", "o"), ("do", "g"), ("dog", "s</w>"), ("a", "t</w>")]
_CARD = "---\nlicense: {licence}\ntags:\n- vision\n---\n\n# A model\n"


def published_clip(
    folder: Path, *, end_id: int | None = None, act: str = "quick_gelu", licence: str = "mit"
) -> CLIPModel:
    """Writes a CLIP as OpenAI's is published, and returns it; `end_id` 2 is that of old files."""
    from transformers import CLIPConfig, CLIPModel

    tokenizer = clip_tokenizer()
    own_end_id = tokenizer.token_to_id("<|endoftext|>")
    config = CLIPConfig(
        text_config=_text_fields(
            tokenizer,
            max_position_embeddings=77,
            hidden_act=act,
            bos_token_id=own_end_id - 1,
            eos_token_id=own_end_id if end_id is None else end_id,
        ),
        vision_config=_vision_fields(hidden_act=act, projection_dim=24),
        projection_dim=24,
    )
    model = _saved(CLIPModel, config, folder)
    write_tokenizer(folder, tokenizer, "CLIPTokenizer", pad="<|endoftext|>", length=77)
    write_json(folder / "preprocessor_config.json", clip_processor_fields())
    write_card(folder, licence)
    return model


def published_metaclip_2(folder: Path) -> MetaClip2Model:
    """Writes a MetaCLIP 2, whose tokenizer is XLM-R's, and returns it."""
    from transformers import MetaClip2Config, MetaClip2Model

    tokenizer = xlm_tokenizer()
    config = MetaClip2Config(
        text_config=_text_fields(
            tokenizer, max_position_embeddings=77, hidden_act="gelu", bos_token_id=0, eos_token_id=2
        ),
        vision_config=_vision_fields(hidden_act="gelu", projection_dim=24),
        projection_dim=24,
    )
    model = _saved(MetaClip2Model, config, folder)
    write_tokenizer(folder, tokenizer, "XLMRobertaTokenizer", pad="<pad>", length=77)
    write_json(folder / "preprocessor_config.json", clip_processor_fields())
    write_card(folder, "cc-by-nc-4.0")
    return model


def published_siglip(folder: Path, *, is_second: bool = False) -> SiglipModel:
    """Writes a SigLIP, or a SigLIP 2 of fixed resolution, and returns it."""
    from transformers import SiglipConfig, SiglipModel

    tokenizer = gemma_tokenizer() if is_second else siglip_tokenizer()
    config = SiglipConfig(
        text_config=_text_fields(tokenizer, max_position_embeddings=64, projection_size=32),
        vision_config=_vision_fields(),
    )
    model = _saved(SiglipModel, config, folder)
    if is_second:
        write_tokenizer(folder, tokenizer, "GemmaTokenizer", pad="<pad>", length=64)
    else:
        write_tokenizer(folder, tokenizer, "SiglipTokenizer", pad="</s>", length=64)
    write_json(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "SiglipImageProcessor",
            "do_resize": True,
            "size": {"height": SIZE, "width": SIZE},
            "resample": 2 if is_second else 3,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )
    write_card(folder, "apache-2.0")
    return model


def clip_processor_fields() -> dict[str, Any]:
    """Returns the preprocessor_config.json of an early CLIP, with plain numbers as sizes."""
    return {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "do_resize": True,
        "size": SIZE,
        "resample": 3,
        "do_center_crop": True,
        "crop_size": SIZE,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }


def clip_tokenizer() -> Tokenizer:
    """Returns a byte-level tokenizer with CLIP's steps and special tokens, of few words."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    pieces += ["".join(pair) for pair in MERGES]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    start, end = len(pieces) - 2, len(pieces) - 1
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=MERGES,
            continuing_subword_prefix="",
            end_of_word_suffix="</w>",
            unk_token="<|endoftext|>",
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Lowercase(),
        ]
    )
    words = (
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|"
        r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", end), ("<|startoftext|>", start), False, False
    )
    return tokenizer


def xlm_tokenizer() -> Tokenizer:
    """Returns a Unigram tokenizer with XLM-R's special tokens, and every letter of the tests."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = _unigram(special, unk_id=3)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def siglip_tokenizer() -> Tokenizer:
    """Returns a tokenizer as SigLIP's tokenizer.json: no begin, lower case, no punctuation."""
    tokenizer = _unigram(["<pad>", "</s>", "<unk>"], unk_id=2)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"""[!"#$%&'()*+,\-./:;<=>?@\[\]^_`{|}~]"""), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.enable_padding(length=64, pad_id=1, pad_token="</s>")
    tokenizer.enable_truncation(64)
    return tokenizer


def gemma_tokenizer() -> Tokenizer:
    """Returns a tokenizer as SigLIP 2's tokenizer.json: Gemma's, which keeps case."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *_letters()]
    merges = [("t", "w"), ("tw", "o"), ("d", "o"), ("do", "g"), ("D", "o")]
    pieces += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.add_special_tokens([AddedToken(each, normalized=False) for each in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    tokenizer.enable_padding(length=64, pad_id=0, pad_token="<pad>")
    tokenizer.enable_truncation(64)
    return tokenizer


def write_tokenizer(
    folder: Path, tokenizer: Tokenizer, kind: str, *, pad: str, length: int
) -> None:
    """Writes tokenizer.json and tokenizer_config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    fields = {
        "tokenizer_class": kind,
        "pad_token": {"content": pad, "__type": "AddedToken", "special": True},
        "model_max_length": length,
    }
    if kind == "GemmaTokenizer":
        fields |= {"padding_side": "right", "add_eos_token": True, "add_bos_token": False}
    write_json(folder / "tokenizer_config.json", fields)


def write_card(folder: Path, licence: str) -> None:
    """Writes a model card that names the licence."""
    (folder / "README.md").write_text(_CARD.format(licence=licence), encoding="utf-8")


def write_json(path: Path, fields: dict[str, Any]) -> None:
    """Writes the fields as JSON."""
    path.write_text(json.dumps(fields, indent=2), encoding="utf-8")


def change_json(path: Path, **fields: object) -> None:
    """Changes fields of a JSON file; None removes one."""
    told = json.loads(path.read_text(encoding="utf-8")) | fields
    write_json(path, {name: value for name, value in told.items() if value is not None})


def _unigram(special: list[str], unk_id: int) -> Tokenizer:
    letters = _letters()
    pieces = [(each, 0.0) for each in special]
    pieces += [("▁", -3.0), *((letter, -4.0) for letter in letters)]
    pieces += [("▁two", -2.0), ("▁dogs", -2.0), ("▁dog", -2.5), ("▁Two", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unk_id))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _letters() -> list[str]:
    czech = "áčďéěíňóřšťúůýž"
    ascii_letters = [chr(code) for code in range(33, 127)]
    return [*ascii_letters, *czech, *czech.upper(), "🐕", "🎻"]


def _text_fields(tokenizer: Tokenizer, **more: object) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.get_vocab_size() + 3,  # some are padded to a round number
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **more,
    }


def _vision_fields(**more: object) -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": 8,
        **more,
    }


def _saved(kind: type[Model], config: Any, folder: Path) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).eval()
        # Published biases and norms are not at the zeros and ones that a fresh model has.
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model
