"""Combines a text tower with the image tower into whose space it was trained."""

from dataclasses import replace

from tandem.modeling.families.loaded_model import parameter_count
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.text_tower import PublishedTextTower
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes

FAMILY = "text_tower"
_NOTE = (
    "That both towers share a space is the user's word: only their number of dimensions is checked."
)


def combined_model(
    folder: PublishedFolder, tower: PublishedTextTower, image: PublishedModel
) -> PublishedModel:
    """Returns the model of both towers; refuses embeddings of different length.

    `folder` is the text tower's; the files of the other are named with "image_encoder/" before.
    """
    if image.bi_encoder is None:
        raise folder.refused(
            f"the image encoder is a {image.family}, which embeds no pictures; name a model that "
            "does, as the card of the text tower says"
        )
    theirs = image.bi_encoder.embedding_dim
    if theirs != tower.embedding_dim:
        raise folder.refused(
            f"it gives {tower.embedding_dim} dimensions and the image encoder {theirs}; name the "
            "model whose image tower it was trained for, as its model card says"
        )
    parts = replace(
        image.bi_encoder, embed_text=tower.embed_text, text=tower.text, has_image_tokens=False
    )
    licence = folder.licence()
    licences = sorted({each for each in (licence, image.licence) if each})
    notes = dict.fromkeys((*licence_notes(licence), *licence_notes(image.licence), _NOTE))
    return PublishedModel(
        family=FAMILY,
        architecture=f"{tower.architecture}, {image.architecture}",
        licence=" and ".join(licences),
        parameter_count=parameter_count(parts.embed_text, parts.embed_image),
        files_sha256={
            **folder.sha256s(),
            **{f"image_encoder/{name}": each for name, each in image.files_sha256.items()},
        },
        tokenizers={tower.text.tokenizer: tower.tokenizer},
        bi_encoder=parts,
        cross_encoder=None,
        notes=tuple(notes),
    )
