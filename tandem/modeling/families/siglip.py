"""Reads SigLIP, and SigLIP 2 of fixed resolution, through SiglipModel.

The text tower pools the last position, padding or not, and attends to padding. So every text is
padded to one length and the mask is not used: a shorter row would be another text to the model.
"""

from typing import Final

from tokenizers import Tokenizer, normalizers
from torch import nn

from tandem.modeling.families.bi_encoder import published_bi_encoder
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import end_token_id, read_text_rules
from tandem.modeling.families.towers import ImageTower, TextTower

IMAGE_PROCESSOR: Final = "SiglipImageProcessor"


def read_siglip(folder: PublishedFolder) -> PublishedModel:
    """Returns a SigLIP of fixed resolution."""
    from transformers import SiglipConfig, SiglipModel

    config = read_config(folder, SiglipConfig, folder.config())
    if not config.vision_config.vision_use_head:
        raise folder.refused("its image tower has no pooling head, so it gives no embedding")
    model = load_model(folder, SiglipModel, config)
    text_config = config.text_config
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=text_config.vocab_size,
        position_count=text_config.max_position_embeddings,
        is_fixed_length=True,
        reads_padding=True,
    )
    end_token_id(folder, tokenizer)
    image, scale = read_image_rules(folder, IMAGE_PROCESSOR, config.vision_config.image_size)
    parts = BiEncoderParts(
        embed_text=TextTower(model.text_model, nn.Identity(), reads_padding=True).eval(),
        embed_image=ImageTower(scale, model.vision_model, nn.Identity()).eval(),
        text=text,
        image=image,
        embedding_dim=text_config.projection_size,
    )
    return published_bi_encoder(folder, "siglip", "SiglipModel", parts, lower_casing(tokenizer))


def lower_casing(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a copy that makes letters lower case first, as every SigLIP was trained.

    SigLIP 2's published tokenizer.json is Gemma's, which keeps case; transformers adds this step in
    code. In the tokenizer it is the same step, letter for letter.
    """
    copy = Tokenizer.from_str(tokenizer.to_str())
    lower = normalizers.Lowercase()
    own = copy.normalizer
    copy.normalizer = lower if own is None else normalizers.Sequence([lower, own])
    return copy
