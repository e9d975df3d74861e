"""Builds the manifest of published models: a bi-encoder, and a cross-encoder of it or another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from tokenizers import Tokenizer

from tandem.model_io.pictures.image_rules import ImageRules, RegionRules
from tandem.model_io.repository.manifest import (
    FORMAT_VERSION,
    JOINT_ENCODER,
    Manifest,
    published_fingerprint,
)
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import (
    PAIR_ROLES,
    REGION_ROLES,
    TEXT_ROLES,
    Role,
    ServedFunctions,
    TokenSource,
    TritonModel,
)
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.export.export_manifest import REGION_FUNCTIONS
from tandem.modeling.export.pooled_tokens import pooled_count
from tandem.modeling.families.published_model import (
    BiEncoderParts,
    CrossEncoderParts,
    PublishedModel,
)
from tandem.modeling.separate_encoders import SeparateEncoders

TEXT_ENCODER = "text_encoder"
IMAGE_ENCODER = "image_encoder"
PAIR_ENCODER = "pair_encoder"
PAIR_IMAGE_ENCODER = "pair_image_encoder"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedPair:
    """Holds what is served together: a retriever, and a reranker if there is one."""

    retriever: PublishedModel
    reranker: PublishedModel | None
    """None without a cross-encoder; the retriever itself where one model is both."""

    @property
    def bi_encoder(self) -> BiEncoderParts:
        """Returns the retriever's towers; raises ValueError if it has none."""
        if self.retriever.bi_encoder is None:
            raise ValueError(
                f"{self.retriever.family} is a cross-encoder, which finds nothing by itself; add "
                "a bi-encoder such as CLIP or SigLIP, and name this one by --cross-encoder"
            )
        return self.retriever.bi_encoder

    @property
    def cross_encoder(self) -> CrossEncoderParts | None:
        """Returns the reranker's parts; raises ValueError if it was named and has none."""
        if self.reranker is None:
            return None
        if self.is_one_model:
            return self.reranker.cross_encoder
        if self.reranker.region_joint is not None:
            raise ValueError(
                f"{self.reranker.family} embeds and scores regions by one encoder, so it reranks "
                "for itself alone; add it without another model"
            )
        if self.reranker.cross_encoder is None:
            raise ValueError(
                f"{self.reranker.family} scores no pairs, so it cannot rerank; name a BLIP, "
                "BLIP-2 or ViLT by --cross-encoder, which score a text and a picture"
            )
        return self.reranker.cross_encoder

    @property
    def regions(self) -> RegionRules | None:
        """Returns the rules of regions; None for models that read pixels.

        Raises ValueError unless the reranker reads the pictures that the retriever reads.
        """
        kinds = [self.bi_encoder.image, *([self.cross_encoder.image] if self.cross_encoder else [])]
        rules = [each for each in kinds if isinstance(each, RegionRules)]
        if rules and (len(rules) < len(kinds) or rules[0] != rules[-1]):
            names = self.retriever.family, self.reranker.family if self.reranker else ""
            raise ValueError(
                f"{names[0]} reads {_read_by(kinds[0])} and {names[1]} {_read_by(kinds[-1])}; an "
                "item has one kind of picture, so name two models that read the same"
            )
        return rules[0] if rules else None

    @property
    def is_one_model(self) -> bool:
        """Returns whether one model gives all three functions."""
        return self.reranker is self.retriever

    @property
    def has_one_picture(self) -> bool:
        """Returns whether a picture's tokens come with its embedding, by one call."""
        cross_encoder = self.cross_encoder
        if cross_encoder is None or self.regions is not None:
            return False
        return self.is_one_model and cross_encoder.image_tokens is None

    def tokenizers(self) -> dict[str, Tokenizer]:
        """Returns the tokenizers that are read, by the names of their files in a repository."""
        joint, cross_encoder = self.retriever.region_joint, self.cross_encoder
        own = (joint or self.bi_encoder).text.tokenizer
        found = {own: self.retriever.tokenizers[own]}
        if (pair_text := self.pair_text()) and cross_encoder and self.reranker:
            found[pair_text.tokenizer] = self.reranker.tokenizers[cross_encoder.text.tokenizer]
        return found

    def pair_text(self) -> TextRules | None:
        """Returns the rules of pairs, with the tokenizer's name in a repository."""
        if self.cross_encoder is None or self.is_one_model:
            return self.cross_encoder.text if self.cross_encoder else None
        rules = self.cross_encoder.text
        return replace(rules, tokenizer=f"pair_{rules.tokenizer}")


def separate_regions(retriever: PublishedModel, reranker: PublishedModel) -> PublishedModel:
    """Returns one model with the BE of the first and the CE of the second (Sep+Coop).

    Raises ValueError for two that read texts or regions differently: both read the same item.
    """
    one, other = retriever.region_joint, reranker.region_joint
    assert one is not None, "both read regions"
    assert other is not None, "both read regions"
    both = {"be": retriever, "ce": reranker}
    words = {each.tokenizers[one.text.tokenizer].to_str() for each in both.values()}
    reads = [(e.text, e.regions, e.cls_id, e.embedding_dim) for e in (one, other)]
    if reads[0] != reads[1] or len(words) > 1:
        raise ValueError(
            f"{retriever.family} and {reranker.family} read texts or regions differently, and both "
            "read the same item; name two that were trained from one folder"
        )
    return replace(
        retriever,
        parameter_count=sum(each.parameter_count for each in both.values()),
        files_sha256={
            f"{use}/{name}": digest
            for use, each in both.items()
            for name, digest in each.files_sha256.items()
        },
        region_joint=replace(other, joint=SeparateEncoders(one.joint, other.joint).eval()),
    )


def published_manifest(pair: PublishedPair, precision: Precision, tokens: TokenSource) -> Manifest:
    """Returns the manifest of the pair's export, without digests of its model files.

    Raises ValueError for models that cannot be served together, or not with these tokens.
    """
    joint, one, other = pair.retriever.region_joint, pair.retriever, pair.reranker
    if joint is not None and not pair.is_one_model:
        raise ValueError(f"--cross-encoder: {one.family} reads regions, and reranks by itself")
    embeds = joint or pair.bi_encoder
    cross_encoder, regions = (None, joint.regions) if joint else (pair.cross_encoder, pair.regions)
    count, width = 0, 0
    if regions is not None:
        if tokens is not TokenSource.STORED:
            raise ValueError(f"--tokens: {one.family} reads regions, whose vectors are its tokens")
        count, width = regions.max_regions, regions.vector_width
    elif cross_encoder is not None:
        count, width = cross_encoder.image_token_count, cross_encoder.token_width
        if tokens is TokenSource.POOLED:
            count = pooled_count(count)
    elif tokens is not TokenSource.STORED:
        raise ValueError("--tokens: only for a model that reranks; name one by --cross-encoder")
    pair_text = pair.pair_text() if joint is None else joint.text if joint.has_pairs else None
    models = [one, *([other] if other and not pair.is_one_model else [])]
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        family="+".join(each.family for each in models),
        fingerprint="",
        precision=precision,
        embedding_dim=embeds.embedding_dim,
        image_token_count=count,
        token_width=width,
        text=embeds.text,
        image=None if joint else _pixels(pair.bi_encoder.image),
        pair_text=pair_text,
        pair_image=_pixels(cross_encoder.image) if cross_encoder else None,
        cls_id=joint.cls_id if joint else None,
        text_version=VISIBLE_TEXT_VERSION,
        functions=_functions(pair),
        models=_models(pair),
        regions=regions,
        tokens=tokens,
        # The authors' fusion is for the similarities of their own bi-encoder.
        default_fusion=one.default_fusion if pair.is_one_model else "none",
        tokenizers={
            name: sha256(tokenizer.to_str().encode()).hexdigest()
            for name, tokenizer in pair.tokenizers().items()
        },
        checkpoint={"family": one.family, "files_sha256": dict(one.files_sha256)}
        if joint
        else {"models": [_described(each) for each in models]},
        licence=" and ".join(dict.fromkeys(each.licence for each in models if each.licence)),
    )
    manifest = replace(manifest, fingerprint=published_fingerprint(manifest))
    manifest.check()
    return manifest


def _pixels(rules: ImageRules | RegionRules) -> ImageRules | None:
    return None if isinstance(rules, RegionRules) else rules


def _read_by(rules: ImageRules | RegionRules) -> str:
    return str(rules) if isinstance(rules, RegionRules) else "pixels"


def _functions(pair: PublishedPair) -> ServedFunctions:
    if (joint := pair.retriever.region_joint) is not None:
        return REGION_FUNCTIONS if joint.has_pairs else replace(REGION_FUNCTIONS, score_pair=None)
    if pair.cross_encoder is None:
        return ServedFunctions(embed_text=TEXT_ENCODER, embed_image=(IMAGE_ENCODER,))
    source = IMAGE_ENCODER if pair.has_one_picture else PAIR_IMAGE_ENCODER
    return ServedFunctions(
        embed_text=TEXT_ENCODER,
        embed_image=(IMAGE_ENCODER,),
        image_tokens=None if pair.regions else source,
        score_pair=PAIR_ENCODER,
    )


def _models(pair: PublishedPair) -> dict[str, TritonModel]:
    if pair.retriever.region_joint is not None:
        return {JOINT_ENCODER: _model(PAIR_ROLES, Role.EMBEDDING, Role.MATCH_LOGIT)}
    of_image = REGION_ROLES if pair.regions else (Role.PIXELS,)
    with_tokens = [Role.IMAGE_TOKENS] if pair.has_one_picture else []
    models = {
        TEXT_ENCODER: _model(TEXT_ROLES, Role.EMBEDDING),
        IMAGE_ENCODER: _model(of_image, Role.EMBEDDING, *with_tokens),
    }
    if pair.cross_encoder is not None:
        models[PAIR_ENCODER] = _model(PAIR_ROLES, Role.MATCH_LOGIT)
        if not pair.has_one_picture and not pair.regions:
            models[PAIR_IMAGE_ENCODER] = _model((Role.PIXELS,), Role.IMAGE_TOKENS)
    return models


def _model(inputs: tuple[Role, ...], *outputs: Role) -> TritonModel:
    return TritonModel(sha256="", inputs=inputs, outputs=outputs)


def _described(model: PublishedModel) -> Mapping[str, Any]:
    return {
        "family": model.family,
        "architecture": model.architecture,
        "parameter_count": model.parameter_count,
        "files_sha256": dict(model.files_sha256),
    }
