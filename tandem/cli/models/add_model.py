"""`tandem models add`: exports a checkpoint of tandem train, or a published model, for Triton."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.options import DEFAULT_REPOSITORY, REPOSITORY, user_path, with_options
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.progress import LongWork
from tandem.lab.zoo.checkpoint import is_zoo_checkpoint
from tandem.lab.zoo.served import read_zoo_model
from tandem.model_io.pictures.image_rules import Fit, ImageRules, RegionRules
from tandem.model_io.repository.manifest import Manifest, model_file
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.model_io.repository.served_functions import TokenSource
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import is_published_folder, read_published_model
from tandem.modeling.published.files import published_folder

_FITS = {
    Fit.CROP: "a square cut out of the centre",
    Fit.SQUASH: "squashed to a square",
    Fit.LETTERBOX: "a square with white margins",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """The options of the command."""

    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME_OR_FOLDER]",
            help="a published model's name on the hub or its folder, or a checkpoint of tandem "
            "train; by default the shipped one",
        ),
    ] = None
    repository: REPOSITORY = DEFAULT_REPOSITORY
    precision: Annotated[Precision | None, "precision; by default bf16 if this CPU supports it"] = (
        None
    )
    revision: Annotated[str | None, "commit, tag or branch of the hub's model"] = None
    image_encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FOLDER",
            help="for a model that is only a text tower: the model of its image tower",
        ),
    ] = None
    cross_encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FOLDER",
            help="published model that reranks; by default the model itself if it can",
        ),
    ] = None
    tokens: Annotated[
        TokenSource | None, "where the cross-encoder's image tokens come from; by default stored"
    ] = None
    pt2: Annotated[bool, "also write model.pt2, by torch.export; takes longer"] = False


@with_options
def add(asked: AddOptions) -> None:
    """Export a model for Triton, and verify its answers.

    Writes TorchScript, config.pbtxt and manifest.json.

    A published model may be CLIP, SigLIP, BLIP or another family of docs/hub-models.md. Write
    NAME@REVISION for a revision of an encoder that an option names.
    """
    chosen = asked.precision or native_precision()
    options = {
        "--revision": asked.revision,
        "--image-encoder": asked.image_encoder,
        "--cross-encoder": asked.cross_encoder,
        "--tokens": asked.tokens,
    }
    if asked.model is None or _is_checkpoint(asked.model):
        if given := [name for name, value in options.items() if value is not None]:
            raise ValueError(
                f"{', '.join(given)}: only for a published model, by its name or folder"
            )
        checkpoint = default_checkpoint() if asked.model is None else user_path(asked.model)
        with LongWork(often_short=True) as work:
            work.show(f"export in {chosen.value}", 0)
            exported = export_model(checkpoint, asked.repository, chosen, with_pt2=asked.pt2)
        _tell(asked.repository, exported)
        return
    with LongWork(often_short=True) as work:
        work.show("read the model", 0)
        retriever = _read_model(asked.model, asked.revision, asked.image_encoder)
        reranker = (
            None if asked.cross_encoder is None else _read_model(asked.cross_encoder, None, None)
        )
        work.show(f"export in {chosen.value}, and compare with the model itself", 0)
        manifest = export_published(
            retriever,
            asked.repository,
            chosen,
            reranker=reranker,
            tokens=asked.tokens or TokenSource.STORED,
            with_pt2=asked.pt2,
        )
    _describe(asked.model, retriever)
    if reranker is not None:
        _describe(str(asked.cross_encoder), reranker)
    _tell(asked.repository, manifest)
    _tell_costs(asked.repository, manifest)


def _is_checkpoint(model: str) -> bool:
    """Returns whether it is a checkpoint's folder or a missing path, and not a hub name."""
    folder = user_path(model)
    if folder.is_file():
        return True  # It is refused by its format, and is no hub name.
    if not folder.is_dir():
        # A hub name is "owner/name" at most; anything else was meant as a path.
        return model.count("/") > 1 or model.startswith(("/", ".", "~"))
    return not (is_published_folder(folder) or is_zoo_checkpoint(folder))


def _read_model(name: str, revision: str | None, image_encoder: str | None) -> PublishedModel:
    """Returns the model; raises ValueError for options that it has no use for."""
    if user_path(name).is_dir() and is_zoo_checkpoint(user_path(name)):
        if revision is not None or image_encoder is not None:
            raise ValueError(f"--revision, --image-encoder: {name} is a model of the zoo")
        return read_zoo_model(user_path(name))
    image_folder = None if image_encoder is None else _folder(image_encoder)
    if revision is not None and user_path(name).is_dir():
        raise ValueError(f"--revision: {name} is a folder; only a model of the hub has revisions")
    folder = _folder(name) if revision is None else published_folder(name, revision)
    return read_published_model(folder, image_folder)


def _folder(name: str) -> Path:
    if user_path(name).is_dir():
        return user_path(name)
    hub_name, _, revision = name.partition("@")
    return published_folder(hub_name, revision or None)


def _describe(name: str, model: PublishedModel) -> None:
    out.print(
        f"{name}: {model.family} ({model.architecture}), {model.parameter_count:,} parameters, "
        f"licence {model.licence or 'not named'}"
    )
    if (towers := model.bi_encoder) is not None:
        out.print(
            f"  bi-encoder: {towers.embedding_dim} dimensions, texts of {towers.text.max_tokens} "
            f"tokens, {_pictures(towers.image, with_fit=True)}"
        )
    if (pairs := model.cross_encoder) is not None:
        out.print(
            f"  cross-encoder: texts of {pairs.text.max_tokens} tokens, {_pictures(pairs.image)}, "
            f"{pairs.image_token_count} image tokens"
        )
    if (joint := model.region_joint) is not None:
        out.print(
            f"  {'bi-encoder and cross-encoder' if joint.has_pairs else 'bi-encoder'} of a "
            f"detector's regions: {joint.embedding_dim} dimensions, texts of "
            f"{joint.text.max_tokens} tokens, {_pictures(joint.regions)}"
        )
    for note in model.notes:
        errors.print(f"{name}: {note}")


def _pictures(rules: ImageRules | RegionRules, *, with_fit: bool = False) -> str:
    if isinstance(rules, RegionRules):
        return str(rules)
    fit = f" ({_FITS[rules.fit]})" if with_fit else ""
    return f"pictures of {rules.size} pixels{fit}"


def _tell(repository: Path, manifest: Manifest) -> None:
    out.print(f"{repository}: model {manifest.fingerprint[:12]}, {manifest.precision}")


def _tell_costs(repository: Path, manifest: Manifest) -> None:
    sizes = {name: model_file(repository, name).stat().st_size for name in sorted(manifest.models)}
    out.print(", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items()))
    item = f"an item takes {4 * manifest.embedding_dim:,} bytes of embedding"
    if not manifest.has_pairs:
        out.print(f"{item}; without a cross-encoder results keep the order of the bi-encoder")
    elif manifest.tokens is TokenSource.RECOMPUTED:
        out.print(f"{item}; its image tokens are computed again when it is reranked")
    else:
        token_bytes = 2 * manifest.image_token_count * manifest.token_width
        out.print(f"{item} and, if it is a picture, {token_bytes:,} of image tokens")
