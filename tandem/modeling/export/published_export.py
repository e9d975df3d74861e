"""Exports published models for Triton: a bi-encoder, alone or with a cross-encoder, or both in one.

Shapes: B batch, H W pixels, R image tokens, D token width, d dimensions.
"""

from pathlib import Path

from torch import Tensor, nn

from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import TokenSource
from tandem.model_io.texts.tokenizer_file import check_tokenizer
from tandem.modeling.export.exported import Modules
from tandem.modeling.export.installation import install_model
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.export.pooled_tokens import pooled
from tandem.modeling.export.published_manifest import (
    IMAGE_ENCODER,
    PAIR_ENCODER,
    PAIR_IMAGE_ENCODER,
    TEXT_ENCODER,
    PublishedPair,
    published_manifest,
    separate_regions,
)
from tandem.modeling.families.published_model import PublishedModel


def export_published(
    retriever: PublishedModel,
    repository: Path,
    precision: Precision,
    *,
    reranker: PublishedModel | None = None,
    tokens: TokenSource = TokenSource.STORED,
    with_pt2: bool = False,
) -> Manifest:
    """Writes the models into `repository` in the place of what is there; returns the manifest.

    The retriever's own cross-encoder reranks, if it has one and no other `reranker` is given; with
    none at all, results keep the bi-encoder's order. Raises ValueError for models that cannot be
    served together, and errors as install_model.
    """
    if reranker is not None and retriever.region_joint and reranker.region_joint:
        retriever, reranker = separate_regions(retriever, reranker), None
    has_own = retriever.cross_encoder is not None or retriever.region_joint is not None
    pair = PublishedPair(retriever=retriever, reranker=reranker or (retriever if has_own else None))
    manifest = published_manifest(pair, precision, tokens)
    tokenizers = pair.tokenizers()
    for rules in (manifest.text, manifest.pair_text):
        if rules is not None:
            check_tokenizer(tokenizers[rules.tokenizer], rules.vocabulary_size)
    modules = published_modules(pair, tokens)
    return install_model(
        {name: lowered_part(module, precision) for name, module in modules.items()},
        manifest,
        tokenizers,
        repository,
        with_pt2=with_pt2,
    )


def published_modules(pair: PublishedPair, tokens: TokenSource) -> Modules:
    """Returns the module of each Triton model, in float32."""
    if pair.retriever.region_joint is not None:
        return {JOINT_ENCODER: pair.retriever.region_joint.joint}
    bi_encoder, cross_encoder = pair.bi_encoder, pair.cross_encoder
    is_pooled = tokens is TokenSource.POOLED
    modules: dict[str, nn.Module] = {TEXT_ENCODER: bi_encoder.embed_text}
    image: nn.Module = bi_encoder.embed_image
    if pair.regions is not None:
        modules[IMAGE_ENCODER] = image
    elif pair.has_one_picture:
        modules[IMAGE_ENCODER] = _PooledPicture(image) if is_pooled else image
    else:
        modules[IMAGE_ENCODER] = _OneOutput(image, 0) if bi_encoder.has_image_tokens else image
    if cross_encoder is None:
        return modules
    modules[PAIR_ENCODER] = cross_encoder.score_pair
    if not pair.has_one_picture and pair.regions is None:
        source = cross_encoder.image_tokens or _tokens_of(pair.reranker)
        modules[PAIR_IMAGE_ENCODER] = _PooledTokens(source) if is_pooled else source
    return modules


def _tokens_of(reranker: PublishedModel | None) -> nn.Module:
    """Returns the tokens that come with the embedding of the reranker's own bi-encoder."""
    if reranker is None or reranker.bi_encoder is None or not reranker.bi_encoder.has_image_tokens:
        raise ValueError("the reranker gives no image tokens, so it cannot be served")
    return _OneOutput(reranker.bi_encoder.embed_image, 1)


class _OneOutput(nn.Module):
    """Gives one of a module's outputs."""

    def __init__(self, inner: nn.Module, number: int) -> None:
        super().__init__()
        self.inner = inner
        self.number = number

    def forward(self, pixels_BHW3: Tensor) -> Tensor:
        output: Tensor = self.inner(pixels_BHW3)[self.number]
        return output


class _PooledTokens(nn.Module):
    """Gives a picture's tokens, pooled."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels_BHW3: Tensor) -> Tensor:
        return pooled(self.inner(pixels_BHW3))


class _PooledPicture(nn.Module):
    """Gives a picture's embedding, and its tokens pooled."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels_BHW3: Tensor) -> tuple[Tensor, Tensor]:
        embedding_Bd, tokens_BRD = self.inner(pixels_BHW3)
        return embedding_Bd, pooled(tokens_BRD)
