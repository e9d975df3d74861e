"""Reads SigLIP, and SigLIP 2 of fixed resolution, through SiglipModel.

The text tower pools the last position, padding or not, and attends to padding. So every text is
padded to one length and the mask is not used: a shorter row would be another text to the model.
"""

import re
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tokenizers import Regex, Tokenizer, normalizers
from torch import nn

from tandem.modeling.families.described import described
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import check_end_token, read_text_rules
from tandem.modeling.families.towers import ImageTower, TextTower
from tandem.modeling.published.files import TOKENIZER_CONFIG
from tandem.modeling.published.folder import PublishedFolder

IMAGE_PROCESSOR: Final = "SiglipImageProcessor"
# Of SigLIP 1; SigLIP 2 has Gemma's.
_FIRST_TOKENIZER: Final = "SiglipTokenizer"


def read_siglip(folder: PublishedFolder) -> PublishedModel:
    from transformers import SiglipConfig, SiglipModel

    config = read_config(folder, SiglipConfig, folder.config())
    model = load_model(folder, SiglipModel, config)
    text_config = config.text_config
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=text_config.vocab_size,
        position_count=text_config.max_position_embeddings,
        is_fixed_length=True,
        reads_padding=True,
    )
    check_end_token(folder, tokenizer)
    image, scale = read_image_rules(folder, IMAGE_PROCESSOR, config.vision_config.image_size)
    parts = BiEncoderParts(
        embed_text=TextTower(model.text_model, nn.Identity(), reads_padding=True).eval(),
        embed_image=ImageTower(scale, model.vision_model, nn.Identity()).eval(),
        text=text,
        image=image,
        embedding_dim=text_config.projection_size,
    )
    tokenizer = as_trained(tokenizer, folder.optional_fields(TOKENIZER_CONFIG))
    modules = parts.embed_text, parts.embed_image
    read = described(folder, "siglip", "SiglipModel", tokenizer, *modules, bi_encoder=parts)
    return replace(read, weights=model.state_dict)


def as_trained(tokenizer: Tokenizer, config: Mapping[str, Any]) -> Tokenizer:
    """Returns a copy that first normalises a text as in the training of its model.

    Every SigLIP was trained on lower case, the first also without ASCII punctuation. transformers
    adds these steps in code, by the tokenizer's class, and a published tokenizer.json may lack
    them. A repeated step changes nothing.
    """
    steps: list[normalizers.Normalizer] = []
    is_first = str(config.get("tokenizer_class")).startswith(_FIRST_TOKENIZER)
    if not is_first or config.get("do_lower_case", True) is not False:
        steps.append(normalizers.Lowercase())
    if is_first:
        steps += [
            normalizers.Replace(Regex(f"[{re.escape(string.punctuation)}]"), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    copy = Tokenizer.from_str(tokenizer.to_str())
    own = copy.normalizer
    copy.normalizer = normalizers.Sequence(steps if own is None else [*steps, own])
    return copy
