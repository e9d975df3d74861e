"""Random models of published families, in small and in full size, with the words of given captions.

Region families have BERT's names of weights; the others are saved by transformers, which the
functions import themselves, because that takes seconds.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from tandem.corpus.regions.regions import FEATURE_WIDTH
from tandem.lab.training.recipes.recipe import Mode
from tests.support.modeling.published_pairs import write_json, write_tokenizer

Weights = dict[str, Tensor]

_SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# Of scenes, which are mostly white. With a photograph's, the white is what a patch says.
_MEAN, _STD = [0.98, 0.98, 0.98], [0.1, 0.1, 0.1]


@dataclass(frozen=True)
class Size:
    """The shape of every encoder, of words and of pictures."""

    width: int
    layer_count: int
    head_count: int
    pixels: int
    patch: int

    @property
    def tower(self) -> dict[str, Any]:
        """Returns the fields of a configuration of transformers."""
        return {
            "hidden_size": self.width,
            "num_hidden_layers": self.layer_count,
            "num_attention_heads": self.head_count,
            "intermediate_size": 4 * self.width,
            # transformers' 0.02 is for a width of 768: at 128 layers hardly add to what they read,
            # and neither a text nor a picture moves the logit.
            "initializer_range": self.width**-0.5,
        }


TINY: Final = Size(64, 1, 1, 32, 16)
SMALL: Final = Size(128, 2, 2, 112, 28)
"""Each patch is a cell of a scene, which holds one drawing at most."""
BASE: Final = Size(768, 12, 12, 384, 16)


def write_start(family: str, folder: Path, captions: Iterable[str], size: Size) -> Path:
    """Writes a random model of the family, whose vocabulary has every word of the captions."""
    folder.mkdir(parents=True)
    found = {word for text in captions for word in re.findall(r"\w+|[^\w\s]", text.lower())}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        FAMILIES[family](folder, sorted(found), size)
    return folder


def _linear(name: str, into: int, out: int) -> Weights:
    # Of the scale at which a layer gives on what it reads.
    weight = torch.randn(out, into) * into**-0.5
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(out)}


def _norm(name: str, width: int) -> Weights:
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


def _table(name: str, count: int, width: int) -> Weights:
    return {f"{name}.weight": torch.randn(count, width) * 0.02}


def _bert(word_count: int, size: Size) -> Weights:
    width = size.width
    weights = {
        **_table("embeddings.word_embeddings", word_count, width),
        **_table("embeddings.position_embeddings", 512, width),
        **_table("embeddings.token_type_embeddings", 2, width),
        **_norm("embeddings.LayerNorm", width),
        **_linear("pooler.dense", width, width),
    }
    for number in range(size.layer_count):
        layer = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            weights |= _linear(f"{layer}.attention.{part}", width, width)
        weights |= _norm(f"{layer}.attention.output.LayerNorm", width)
        weights |= _linear(f"{layer}.intermediate.dense", width, 4 * width)
        weights |= _linear(f"{layer}.output.dense", 4 * width, width)
        weights |= _norm(f"{layer}.output.LayerNorm", width)
    return weights


def _write_bert(folder: Path, words: list[str], size: Size, weights: Weights, **more: Any) -> None:
    fields = size.tower | {
        "vocab_size": len(words) + len(_SPECIAL),
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(fields | more))
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("\n".join((*_SPECIAL, *words)) + "\n", encoding="utf-8")


def _oscar(folder: Path, words: list[str], size: Size, has_image_norm: bool = False) -> None:
    """Writes a pretrained OSCAR, with a head of pretraining and none for pairs."""
    bert = _bert(len(words) + len(_SPECIAL), size)
    bert |= _linear("img_embedding", FEATURE_WIDTH + 6, size.width)
    if has_image_norm:
        bert |= _norm("LayerNorm", size.width)
    weights = {f"bert.{name}": each for name, each in bert.items()}
    weights |= _linear("cls.seq_relationship", size.width, 2)
    fields = {"img_feature_dim": FEATURE_WIDTH + 6, "img_feature_type": "faster_r-cnn"}
    _write_bert(folder, words, size, weights, **fields, use_img_layernorm=int(has_image_norm))


def _vinvl(folder: Path, words: list[str], size: Size) -> None:
    _oscar(folder, words, size, has_image_norm=True)


def _uniter(folder: Path, words: list[str], size: Size) -> None:
    width = size.width
    weights = {
        **_bert(len(words) + len(_SPECIAL), size),
        **_linear("img_embeddings.img_linear", FEATURE_WIDTH, width),
        **_norm("img_embeddings.img_layer_norm", width),
        **_linear("img_embeddings.pos_linear", 7, width),
        **_norm("img_embeddings.pos_layer_norm", width),
        **_norm("img_embeddings.LayerNorm", width),
        **_table("img_embeddings.mask_embedding", 2, FEATURE_WIDTH),
        **_linear("itm_output", width, 2),
    }
    _write_bert(folder, words, size, {f"uniter.{name}": each for name, each in weights.items()})
    write_json(folder / "tokenizer_config.json", {"do_lower_case": False})


def _m3p(folder: Path, words: list[str], size: Size) -> None:
    width, special = size.width, ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*special, "▁", *(f"▁{word}" for word in words)]
    tokenizer = Tokenizer(models.Unigram([(piece, -2.0) for piece in pieces], unk_id=3))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    ends = ("</s>", 2), ("<s>", 0)
    tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = {
        **_table("embeddings", len(pieces), width),
        **_table("position_embeddings", 514, width),
        **_norm("layer_norm_emb", width),
        **_linear("image_embeddings.image_embeddings", FEATURE_WIDTH, width),
        **_linear("image_embeddings.image_location_embeddings", 5, width),
        **_norm("image_embeddings.LayerNorm", width),
        **_linear("pooled_layer.dense", width, width),
        **_linear("seq_relationship", width, 1),
        **_linear("mrfr_dense", width, FEATURE_WIDTH),
    }
    for number in range(size.layer_count):
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            weights |= _linear(f"attentions.{number}.{part}", width, width)
        weights |= _linear(f"ffns.{number}.lin1", width, 4 * width)
        weights |= _linear(f"ffns.{number}.lin2", 4 * width, width)
        weights |= _norm(f"layer_norm1.{number}", width) | _norm(f"layer_norm2.{number}", width)
    torch.save({"model": weights}, folder / "m3p_under_weights.pth")


def _words(folder: Path, words: list[str]) -> dict[str, Any]:
    """Writes BERT's tokenizer of the words; returns the fields that follow from it."""
    ids = {word: number for number, word in enumerate((*_SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    write_tokenizer(folder, tokenizer, "BertTokenizer", pad="[PAD]", length=64)
    return {"vocab_size": len(ids), "max_position_embeddings": 64}


def _metaclip_2(folder: Path, words: list[str], size: Size) -> None:
    from transformers import MetaClip2Config, MetaClip2Model

    text, vision = _clip_fields(folder, words, size)
    config = MetaClip2Config(text_config=text, vision_config=vision, projection_dim=size.width // 2)
    MetaClip2Model(config).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _processor("CLIP", size))


def _blip2(folder: Path, words: list[str], size: Size) -> None:
    from transformers import Blip2Config, Blip2ForImageTextRetrieval

    text: dict[str, Any] = size.tower | _words(folder, words)
    unused = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = Blip2Config(
        qformer_config=text
        | {
            "vocab_size": text["vocab_size"] + 1,
            "encoder_hidden_size": size.width,
            "use_qformer_text_input": True,
            "cross_attention_frequency": 1,
        },
        vision_config=size.tower | {"image_size": size.pixels, "patch_size": size.patch},
        text_config={"model_type": "opt", "word_embed_proj_dim": 16, **unused},
        num_query_tokens=4,
        image_text_hidden_size=size.width // 2,
        image_token_index=None,
    )
    Blip2ForImageTextRetrieval(config).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _processor("Blip", size))


def _visual_bert(folder: Path, words: list[str], size: Size) -> None:
    from transformers import VisualBertConfig, VisualBertForPreTraining

    fields = _words(folder, words)
    config = VisualBertConfig(**size.tower, **fields, visual_embedding_dim=FEATURE_WIDTH)
    VisualBertForPreTraining(config).save_pretrained(folder)


def _vilt(folder: Path, words: list[str], size: Size) -> None:
    from transformers import ViltConfig, ViltForImageAndTextRetrieval

    pictures: dict[str, Any] = {"image_size": size.pixels, "patch_size": size.patch}
    config = ViltConfig(**size.tower, **pictures, **_words(folder, words))
    ViltForImageAndTextRetrieval(config).save_pretrained(folder)
    fields = {"size": {"shortest_edge": size.pixels}, "size_divisor": size.patch}
    write_json(folder / "preprocessor_config.json", _processor("Vilt", size) | fields)


def _blip(folder: Path, words: list[str], size: Size) -> None:
    from transformers import BlipConfig, BlipForImageTextRetrieval

    text: dict[str, Any] = size.tower | _words(folder, words)
    count = text["vocab_size"]
    text |= {"vocab_size": count + 2, "bos_token_id": count, "sep_token_id": 3}
    config = BlipConfig(
        text_config=text | {"encoder_hidden_size": size.width},
        vision_config=size.tower | {"image_size": size.pixels, "patch_size": size.patch},
        image_text_hidden_size=size.width // 2,
    )
    BlipForImageTextRetrieval(config).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _processor("Blip", size))


def _clip(folder: Path, words: list[str], size: Size) -> None:
    from transformers import CLIPConfig, CLIPModel

    text, vision = _clip_fields(folder, words, size)
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=size.width // 2)
    CLIPModel(config).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _processor("CLIP", size))


def _clip_fields(
    folder: Path, words: list[str], size: Size
) -> tuple[dict[str, Any], dict[str, Any]]:
    both = size.tower | {"projection_dim": size.width // 2}
    text = both | _words(folder, words) | {"bos_token_id": 2, "eos_token_id": 3}
    return text, both | {"image_size": size.pixels, "patch_size": size.patch}


def _siglip(folder: Path, words: list[str], size: Size) -> None:
    from transformers import SiglipConfig, SiglipModel

    fields = _words(folder, words) | {"projection_size": size.width}
    config = SiglipConfig(
        text_config=size.tower | fields,
        vision_config=size.tower | {"image_size": size.pixels, "patch_size": size.patch},
    )
    SiglipModel(config).save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _processor("Siglip", size))


def _processor(family: str, size: Size) -> dict[str, Any]:
    return {
        "image_processor_type": f"{family}ImageProcessor",
        "do_resize": True,
        "size": {"height": size.pixels, "width": size.pixels},
        "do_center_crop": False,
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": _MEAN,
        "image_std": _STD,
        "do_convert_rgb": True,
    }


FAMILIES: Final[Mapping[str, Callable[[Path, list[str], Size], None]]] = {
    "oscar": _oscar,
    "vinvl": _vinvl,
    "uniter": _uniter,
    "m3p": _m3p,
    "visual_bert": _visual_bert,
    "vilt": _vilt,
    "blip": _blip,
    "blip-2": _blip2,
    "clip": _clip,
    "metaclip_2": _metaclip_2,
    "siglip": _siglip,
}
"""VILLA has UNITER's layout."""
OF_REGIONS: Final = ("oscar", "vinvl", "uniter", "m3p", "visual_bert")
MODES: Final[Mapping[str, Mode]] = {
    "vilt": "ce",
    "blip-2": "ce",
    "clip": "be",
    "metaclip_2": "be",
    "siglip": "be",
}
"""Families that are a BE or a CE alone."""
