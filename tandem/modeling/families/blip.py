"""Serves BLIP's retrieval models: bi-encoder (ITC) and cross-encoder (ITM) of one checkpoint.

Shapes: B batch, S pixels per side, T text tokens, R image tokens, D width, d dimensions.

The image side runs once a picture and gives both the embedding and the tokens that the pair side
reads. transformers' own forward scores a pair with [CLS] as first token; the authors evaluate with
[ENC] there, which is what the text rules of a pair say.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from torch import Tensor, nn
from torch.nn.functional import normalize

from tandem.modeling.families.described import described
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.published_model import (
    BiEncoderParts,
    CrossEncoderParts,
    PublishedModel,
)
from tandem.modeling.families.text_rules import check_end_token, read_text_rules
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.folder import PublishedFolder

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import BlipForImageTextRetrieval, BlipTextConfig

# The authors cut captions to this many tokens, and trained on no longer ones.
_MAX_TOKENS: Final = 35
_ENCODE: Final = "[ENC]"
_SUM: Final = (
    "Its authors rank by similarity plus the head's second number, about half the match logit: "
    "tandem search --fusion logit_add --cross-encoder-weight 0.33."
)
_NO_ENCODE: Final = (
    "Its vocabulary has no [ENC], so pairs begin with [CLS], as in transformers' own forward."
)


def read_blip(folder: PublishedFolder) -> PublishedModel:
    """Returns a BLIP that was trained for retrieval; refuses one for questions or captions."""
    from transformers import BlipConfig, BlipForImageTextRetrieval

    config = read_config(folder, BlipConfig, folder.config())
    # Otherwise its text encoder reads no picture, and no pair has a score.
    folder.check_served(config.text_config.to_dict(), {"is_decoder": (True,)})
    image, scale = read_image_rules(folder, "BlipImageProcessor", config.vision_config.image_size)
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=config.text_config.vocab_size,
        position_count=min(_MAX_TOKENS, config.text_config.max_position_embeddings),
    )
    check_end_token(folder, tokenizer, config.text_config.sep_token_id)
    encode_id = _encode_id(tokenizer, config.text_config)
    model = load_model(folder, BlipForImageTextRetrieval, config, attention="eager")
    both = described(
        folder,
        "blip",
        type(model).__name__,
        tokenizer,
        model,
        bi_encoder=BiEncoderParts(
            embed_text=BlipText(model).eval(),
            embed_image=BlipImage(model, scale).eval(),
            text=text,
            image=image,
            embedding_dim=config.image_text_hidden_size,
            has_image_tokens=True,
        ),
        cross_encoder=CrossEncoderParts(
            score_pair=BlipPair(model).eval(),
            image_tokens=None,
            text=replace(text, first_id=encode_id),
            image=image,
            image_token_count=model.vision_model.embeddings.num_positions,
            token_width=config.vision_config.hidden_size,
        ),
        notes=(_SUM, *([] if encode_id is not None else [_NO_ENCODE])),
    )
    return replace(both, default_fusion="add", weights=model.state_dict)


class BlipText(nn.Module):
    """Embeds a text that begins with [CLS]."""

    def __init__(self, model: "BlipForImageTextRetrieval") -> None:
        super().__init__()
        self.encoder = model.text_encoder
        self.project = model.text_proj

    def forward(self, token_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        read = self.encoder(input_ids=token_ids_BT, attention_mask=text_mask_BT)
        return normalize(self.project(read.last_hidden_state[:, 0]), dim=-1)


class BlipImage(nn.Module):
    """Embeds a picture, and gives the tokens that BlipPair reads."""

    def __init__(self, model: "BlipForImageTextRetrieval", scale: PixelScale) -> None:
        super().__init__()
        self.scale = scale
        self.encoder = model.vision_model
        self.project = model.vision_proj

    def forward(self, pixels_BSS3: Tensor) -> tuple[Tensor, Tensor]:
        """Returns embeddings [B, d] of unit length and tokens float16 [B, R, D].

        In training tokens keep their type: in float16 their gradients would vanish.
        """
        tokens_BRD = self.encoder(self.scale(pixels_BSS3)).last_hidden_state
        embedding_Bd = normalize(self.project(tokens_BRD[:, 0]), dim=-1)
        return embedding_Bd, tokens_BRD if self.training else tokens_BRD.half()


class BlipPair(nn.Module):
    """Scores a text that begins with [ENC] and the tokens of a picture.

    All tokens are read, whatever the mask: transformers loses it on the way to the attention, and
    every picture has all tokens.
    """

    def __init__(self, model: "BlipForImageTextRetrieval") -> None:
        super().__init__()
        self.encoder = model.text_encoder
        self.head = model.itm_head

    def forward(
        self, token_ids_BT: Tensor, text_mask_BT: Tensor, tokens_BRD: Tensor, image_mask_BR: Tensor
    ) -> Tensor:
        """Returns the logit [B, 1] that both match: the head's second number less its first."""
        read = self.encoder(
            input_ids=token_ids_BT,
            attention_mask=text_mask_BT,
            encoder_hidden_states=tokens_BRD.float(),
        )
        logits_B2 = self.head(read.last_hidden_state[:, 0])
        return logits_B2[:, 1:] - logits_B2[:, :1]


def _encode_id(tokenizer: "Tokenizer", config: "BlipTextConfig") -> int | None:
    """Returns the id of [ENC], with which pairs begin; None if the checkpoint has none.

    The authors' code adds [DEC] and [ENC] to BERT's words as it runs, so the published tokenizers
    lack both: the last two rows of the vocabulary are theirs, and `bos_token_id` is [DEC].
    """
    if (named := tokenizer.token_to_id(_ENCODE)) is not None:
        return int(named)
    words = tokenizer.get_vocab_size(with_added_tokens=True)
    last = config.vocab_size - 1
    is_authors_own = config.bos_token_id == last - 1 and words <= config.bos_token_id
    return last if is_authors_own else None
