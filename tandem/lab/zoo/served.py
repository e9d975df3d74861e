"""Makes the served functions of a model of the zoo, as published models have them.

A network that embeds is a bi-encoder, one that scores pairs a cross-encoder; any two of them, or
one of them and a published model, serve together.

Shapes: B batch, H W pixels, T text tokens, R image tokens, I width of an image token, D embedding
width.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

from torch import Tensor, nn

from tandem.lab.zoo.checkpoint import load_zoo_checkpoint
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.model_io.texts.text_rules import TextRules
from tandem.modeling.checkpoint_files import CONFIG, TOKENIZER, WEIGHTS
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export_manifest import own_text_rules
from tandem.modeling.families.loaded_model import parameter_count
from tandem.modeling.families.published_model import (
    BiEncoderParts,
    CrossEncoderParts,
    PublishedModel,
)

FAMILY: Final = "zoo"


def read_zoo_model(folder: Path) -> PublishedModel:
    """Returns the functions of a checkpoint of the zoo, ready to be exported."""
    checkpoint = load_zoo_checkpoint(folder)
    model = checkpoint.model
    text = own_text_rules(checkpoint.files)
    return PublishedModel(
        family=f"{FAMILY}_{model.zoo.model}",
        architecture=type(model.network).__name__,
        licence="",
        parameter_count=parameter_count(model),
        files_sha256={
            name: sha256((folder / name).read_bytes()).hexdigest()
            for name in (CONFIG, TOKENIZER, WEIGHTS)
        },
        tokenizers={TOKENIZER: checkpoint.tokenizer},
        bi_encoder=_bi_encoder(model, text),
        cross_encoder=_cross_encoder(model, text),
    )


class Embed(nn.Module):
    """Embeds a text by its token ids, or a picture by its regions."""

    def __init__(self, model: ZooModel, *, reads_texts: bool) -> None:
        super().__init__()
        self.network, self.reads_texts = model.network, reads_texts

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        read = self.network.read_texts if self.reads_texts else self.network.read_images
        return self.network.embedding(read(inputs, mask))


class EmbedImage(nn.Module):
    """Embeds a picture, and may give the tokens that its pairs are scored by."""

    def __init__(self, model: ZooModel, *, gives_tokens: bool) -> None:
        super().__init__()
        self.backbone, self.network = model.image_backbone, model.network
        self.gives_tokens = gives_tokens

    def forward(self, pixels_BHW3: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Returns unit vectors, float32 [B, D], and perhaps tokens, float16 [B, R, I]."""
        tokens_BRI = self.backbone(pixels_BHW3)
        read = self.network.read_images(tokens_BRI, _all_of(tokens_BRI))
        embeddings_BD = self.network.embedding(read)
        return (embeddings_BD, tokens_BRI) if self.gives_tokens else embeddings_BD


class ScorePair(nn.Module):
    """Scores a text and the image tokens of a picture."""

    def __init__(self, model: ZooModel) -> None:
        super().__init__()
        self.network = model.network

    def forward(
        self, token_ids_BT: Tensor, text_mask_BT: Tensor, tokens_BRI: Tensor, image_mask_BR: Tensor
    ) -> Tensor:
        """Returns the match logit, float32 [B, 1]."""
        images = self.network.read_images(tokens_BRI, image_mask_BR)
        texts = self.network.read_texts(token_ids_BT, text_mask_BT)
        return self.network.logits(self.network.row_by_row(images, texts))[:, None]


def _bi_encoder(model: ZooModel, text: TextRules) -> BiEncoderParts | None:
    if not model.network.embeds:
        return None
    regions = model.config.region_rules
    gives_tokens = model.network.scores_pairs and regions is None
    embed_image = (
        Embed(model, reads_texts=False) if regions else EmbedImage(model, gives_tokens=gives_tokens)
    )
    return BiEncoderParts(
        embed_text=Embed(model, reads_texts=True).eval(),
        embed_image=embed_image.eval(),
        text=text,
        image=regions or model.config.image_rules,
        embedding_dim=model.zoo.width,
        has_image_tokens=gives_tokens,
    )


def _cross_encoder(model: ZooModel, text: TextRules) -> CrossEncoderParts | None:
    if not model.network.scores_pairs:
        return None
    config: JointConfig = model.config
    regions = config.region_rules
    return CrossEncoderParts(
        score_pair=ScorePair(model).eval(),
        image_tokens=None if model.network.embeds or regions else model.image_backbone,
        text=text,
        image=regions or config.image_rules,
        image_token_count=config.image_token_count,
        token_width=config.token_width,
    )


def _all_of(tokens_BRI: Tensor) -> Tensor:
    """Returns a mask by which every token counts, of whatever batch a trace is run with."""
    return (tokens_BRI[..., 0] == tokens_BRI[..., 0]).long()
