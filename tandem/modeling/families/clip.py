"""Reads CLIP: OpenAI's, LAION's and TinyCLIP, and MetaCLIP 2, through CLIPModel and MetaClip2Model.

The text tower attends to what stands before, and pools where the end token is. So padding does not
matter, but a text that is cut must keep its end token.
"""

from typing import TYPE_CHECKING, Any, Final

from tokenizers import Tokenizer

from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.licence import licence_notes
from tandem.modeling.families.loaded_model import load_model, parameter_count, read_config
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import end_token_id, read_text_rules
from tandem.modeling.families.towers import ImageTower, TextTower

if TYPE_CHECKING:
    from transformers import CLIPModel, MetaClip2Model

IMAGE_PROCESSOR: Final = "CLIPImageProcessor"
# Configurations from before 2023 say 2, and then the highest id of a text is its end.
_HIGHEST_ID_ENDS: Final = 2


def read_clip(folder: PublishedFolder) -> PublishedModel:
    """Returns a CLIP of transformers' format."""
    from transformers import CLIPConfig, CLIPModel

    config = read_config(folder, CLIPConfig, folder.config())
    model = load_model(folder, CLIPModel, config)
    return clip_model(folder, "clip", model)


def read_metaclip_2(folder: PublishedFolder) -> PublishedModel:
    """Returns a MetaCLIP 2, whose tokenizer is that of XLM-R or XLM-V."""
    from transformers import MetaClip2Config, MetaClip2Model

    config = read_config(folder, MetaClip2Config, folder.config())
    model = load_model(folder, MetaClip2Model, config)
    return clip_model(folder, "metaclip_2", model)


def clip_model(
    folder: PublishedFolder, family: str, model: "CLIPModel | MetaClip2Model"
) -> PublishedModel:
    """Returns the published model of a loaded CLIP, with the folder's tokenizer and rules."""
    config: Any = model.config  # its types say that any field may be missing
    text_config = config.text_config
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=text_config.vocab_size,
        position_count=text_config.max_position_embeddings,
    )
    _check_end_token(folder, tokenizer, text_config, is_metaclip=family == "metaclip_2")
    image, scale = read_image_rules(folder, IMAGE_PROCESSOR, config.vision_config.image_size)
    return PublishedModel(
        family=family,
        architecture=type(model).__name__,
        licence=(licence := folder.licence()),
        parameter_count=parameter_count(model),
        files_sha256=dict(folder.sha256s()),
        tokenizers={text.tokenizer: tokenizer},
        bi_encoder=BiEncoderParts(
            embed_text=TextTower(model.text_model, model.text_projection).eval(),
            embed_image=ImageTower(scale, model.vision_model, model.visual_projection).eval(),
            text=text,
            image=image,
            embedding_dim=config.projection_dim,
        ),
        cross_encoder=None,
        notes=licence_notes(licence),
    )


def _check_end_token(
    folder: PublishedFolder,
    tokenizer: Tokenizer,
    config: Any,  # noqa: ANN401  of transformers
    is_metaclip: bool,
) -> None:
    """Refuses a tokenizer whose end token is not where the tower pools."""
    own = end_token_id(folder, tokenizer)
    if config.eos_token_id == _HIGHEST_ID_ENDS and not is_metaclip:
        highest = max(tokenizer.get_vocab(with_added_tokens=True).values())
        if own != highest:
            raise folder.refused(
                f"its text tower pools at the highest id of a text, and its tokenizer ends texts "
                f"with {own} of {highest}; they are not of one checkpoint"
            )
    elif own != config.eos_token_id:
        raise folder.refused(
            f"its text tower pools at eos_token_id {config.eos_token_id}, and its tokenizer ends "
            f"texts with {own}; they are not of one checkpoint"
        )
