"""Reads CLIP: OpenAI's, LAION's and TinyCLIP, and MetaCLIP 2, through CLIPModel and MetaClip2Model.

The text tower attends to what stands before, and pools where the end token is. So padding does not
matter, but a text that is cut must keep its end token.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tokenizers import Tokenizer

from tandem.model_io.texts.text_rules import TextRules
from tandem.modeling.families.described import described
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import check_end_token, read_text_rules
from tandem.modeling.families.towers import ImageTower, TextTower
from tandem.modeling.published.folder import PublishedFolder

if TYPE_CHECKING:
    from transformers import CLIPModel, MetaClip2Model

IMAGE_PROCESSOR: Final = "CLIPImageProcessor"
# Configurations from before 2023 say 2, and then the highest id of a text is its end.
_HIGHEST_ID_ENDS: Final = 2


def read_clip(folder: PublishedFolder) -> PublishedModel:
    from transformers import CLIPConfig, CLIPModel

    config = read_config(folder, CLIPConfig, folder.config())
    model = load_model(folder, CLIPModel, config)
    return _transformers_clip(folder, "clip", model)


def read_metaclip_2(folder: PublishedFolder) -> PublishedModel:
    """Returns a MetaCLIP 2, whose tokenizer is that of XLM-R or XLM-V."""
    from transformers import MetaClip2Config, MetaClip2Model

    config = read_config(folder, MetaClip2Config, folder.config())
    model = load_model(folder, MetaClip2Model, config)
    return _transformers_clip(folder, "metaclip_2", model)


def _transformers_clip(
    folder: PublishedFolder, family: str, model: "CLIPModel | MetaClip2Model"
) -> PublishedModel:
    config: Any = model.config  # its types say that any field may be missing
    tokenizer, text = clip_text_rules(folder, config.text_config, is_metaclip=family != "clip")
    image, scale = read_image_rules(folder, IMAGE_PROCESSOR, config.vision_config.image_size)
    parts = BiEncoderParts(
        embed_text=TextTower(model.text_model, model.text_projection).eval(),
        embed_image=ImageTower(scale, model.vision_model, model.visual_projection).eval(),
        text=text,
        image=image,
        embedding_dim=config.projection_dim,
    )
    modules = parts.embed_text, parts.embed_image
    name = type(model).__name__
    read = described(folder, family, name, tokenizer, *modules, bi_encoder=parts)
    return replace(read, weights=model.state_dict)


def clip_text_rules(
    folder: PublishedFolder,
    config: Any,  # noqa: ANN401  a text configuration of transformers
    is_metaclip: bool = False,
) -> tuple[Tokenizer, TextRules]:
    """Returns tokenizer and rules; refuses one whose end token is not where the tower pools."""
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=config.vocab_size,
        position_count=config.max_position_embeddings,
    )
    ends_with: int = config.eos_token_id
    if ends_with == _HIGHEST_ID_ENDS and not is_metaclip:
        ends_with = max(tokenizer.get_vocab(with_added_tokens=True).values())
    check_end_token(folder, tokenizer, ends_with)
    return tokenizer, text
