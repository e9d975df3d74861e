"""Defines recipes: the complete configuration of a training run, a class for each kind of run.

A recipe and its seed determine a checkpoint; both are written into its training.json. The named
ones are in named_recipes.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

from tandem.corpus.scenes.records import FAMILY_SIZE
from tandem.lab.zoo.config import TextReader, ZooName
from tandem.modeling.config import ImageSource, PictureFit, Pooling
from tandem.platform.files.json_object import within

DevScore = Literal["text_to_image", "mean_recall"]
Decay = Literal["linear", "cosine"]
PairLoss = Literal["classification", "triplet"]
Hinges = Literal["hardest", "all"]
Mode = Literal["joint", "separate", "be", "ce"]
_AS_PUBLISHED = (("mlm_steps_per_round", 0), ("embedding_pooling", "mean"), ("view_count", 1))

# A field's type has the range of its numbers.
_MANY = 10_000_000
Some = Annotated[int, (1, _MANY)]
Count = Annotated[int, (0, _MANY)]
Batch = Annotated[int, (2, _MANY)]
Width = Annotated[int, (1, 65_536)]
Share = Annotated[float, (0.0, 1.0)]
Rate = Annotated[float, (0.0, 1.0)]
Dropout = Annotated[float, (0.0, 0.99)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What every kind of run reads: an encoder, data, an optimiser and a schedule."""

    name: str
    seed: Annotated[int, (0, 2**63 - 1)]

    width: Width
    layer_count: Annotated[int, (1, 1_000)]
    head_count: Width
    vocabulary_size: Some
    pretrained: str = ""
    """Folder or hub name of a published encoder to begin from, which then sets `width`,
    `layer_count`, `head_count` and `vocabulary_size`; empty begins with random weights."""
    pretrained_weights_sha256: str = ""
    """Each digest of a file that the run reads is filled in when it starts."""
    has_half_the_layers: bool = False
    """Take every second layer of the published encoder, from the first."""
    begins_trained: bool = False
    """Begin from a checkpoint of ours, which then sets the shape."""
    begins_with_backbone: bool = False
    """Take the image backbone of a checkpoint of ours and keep it frozen, as the papers keep their
    detector."""
    init_weights_sha256: str = ""
    dropout: Dropout = 0.0
    """Of the encoder in training, unless it begins from a Tandem checkpoint."""

    corpus: str = "scenes"
    """Name or path of what is trained on."""
    languages: str = ""
    """Languages of the captions that are read, separated by commas; empty reads all of them."""
    corpus_sha256: str = ""
    """Of the records that are read; empty for scenes, which follow from the seed."""
    regions_sha256: str = ""
    """Of the file of regions that replaces pixels."""
    image_source: ImageSource = "grid"
    vision: str = ""
    """Folder or hub name of the network of image_source vision_tower."""
    vision_weights_sha256: str = ""
    image_size: Annotated[int, (16, 8_192)] = 112
    """Side in pixels, unless the run begins with a checkpoint's image backbone."""
    picture_fit: PictureFit = "letterbox"
    """How a picture becomes a square."""
    view_count: Annotated[int, (1, 100)] = 1
    """Views of each training picture: the picture, its mirror image, and crops
    (picture_views.py)."""
    view_stretch: Annotated[float, (0.0, 1.0)] = 0.0
    """Largest natural logarithm of the factor between a crop's aspect and its picture's; 0 keeps
    the picture's aspect."""
    pool_family_count: Count
    """Families whose image tokens are computed once and trained on."""
    dev_family_count: Some
    held_out_family_count: Count = 0
    """Families of the training split that are held out, to pick the checkpoint and the fusion by;
    0 takes the split `val` for that."""
    held_out_picture_count: Count = 0
    """Pictures of the training split that are held out instead, one of each of so many families.
    Their other pictures are learned from: dev then has new pictures of what the model knows."""

    learning_rate: Rate
    weight_decay: Annotated[float, (0.0, 1.0)]
    gradient_clip_norm: Annotated[float, (1e-6, 1e6)]
    warm_up_step_count: Count = 100
    """Steps, at most a tenth of them, in which the learning rate rises to its full value."""
    learning_rate_decay: Decay = "linear"
    """How the learning rate then falls to 0."""
    adam_epsilon: Annotated[float, (0.0, 1.0)] = 1e-8
    adam_beta2: Annotated[float, (0.0, 0.999999)] = 0.999
    """Decay of the average of squared gradients; smaller forgets sooner."""
    precision: str = "bf16"
    """Of matrix products: bf16, or fp32 to compare runs closely."""

    round_count: Some
    """A round is `be_steps_per_round` for the BE and then `ce_steps_per_round` for the CE."""
    dev_every_round_count: Some
    dev_score: DevScore = "text_to_image"
    """What the best checkpoint is picked by: `text_to_image` takes R@1 and R@10 of the BE and R@1
    of the CE in that direction, `mean_recall` takes R@1, R@5 and R@10 of both directions."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            if get_origin(kind) is Annotated:
                within(name, getattr(self, name), *kind.__metadata__[0])
        for conflict in self._conflicts():
            raise ValueError(f"recipe {self.name} {conflict}")

    def _conflicts(self) -> Iterator[str]:
        """Yields what is wrong with fields together, and what to do."""
        if self.precision not in ("bf16", "fp32"):
            yield f"has precision {self.precision!r}: bf16 or fp32"
        brings_network = self.begins_trained or isinstance(self, MatcherRecipe)
        if not brings_network and (self.image_source == "vision_tower") != bool(self.vision):
            yield (
                f"has image_source {self.image_source} and vision {self.vision!r}; name a network "
                "with --image-source FOLDER_OR_NAME"
            )
        if self.held_out_family_count and self.held_out_picture_count:
            yield (
                "holds out both families and pictures: set held_out_family_count or "
                "held_out_picture_count to 0"
            )
        if self.image_source == "efficientnet_lite0_early" and not isinstance(self, Towers):
            yield (
                "has image_source efficientnet_lite0_early, which two towers continue; take "
                "efficientnet_lite0"
            )
        if self.begins_with_backbone and (self.learns_backbone or self.begins_trained):
            yield (
                "takes a trained image backbone as it is: set backbone_step_count to 0 and "
                "begins_trained to False"
            )
        if self.begins_trained and self.has_half_the_layers:
            yield (
                "has half the layers of a published encoder, and a checkpoint of ours keeps all of "
                "its layers: leave --init out"
            )

    # A kind of run without such steps has no field that counts them.

    @property
    def trains_be(self) -> bool:
        return getattr(self, "be_steps_per_round", 1) > 0

    @property
    def trains_ce(self) -> bool:
        """Whether the model learns to match in rounds."""
        return getattr(self, "ce_steps_per_round", 0) > 0

    @property
    def learns_backbone(self) -> bool:
        """Whether the image backbone learns before the rounds."""
        return getattr(self, "backbone_step_count", 0) > 0

    @property
    def begins_with_checkpoint(self) -> bool:
        return self.begins_trained or self.begins_with_backbone or isinstance(self, MatcherRecipe)

    @property
    def holds_out(self) -> bool:
        """Whether dev is a part of the training split."""
        return bool(self.held_out_family_count or self.held_out_picture_count)

    def measures_after(self, round_number: int) -> bool:
        return round_number % self.dev_every_round_count == 0 or round_number == self.round_count

    @property
    def batch_family_counts(self) -> dict[str, int]:
        """Families that one step draws from, by the field that says so."""
        steps = {
            "be_batch_size": "be_steps_per_round",
            "mlm_batch_size": "mlm_steps_per_round",
            "ce_family_count": "ce_steps_per_round",
            "ance_batch_size": "ance_steps_per_round",
            "matcher_batch_size": "matcher_step_count",
            "backbone_batch_size": "backbone_step_count",
        }
        return {
            batch: getattr(self, batch)
            for batch, count in steps.items()
            if hasattr(self, batch) and getattr(self, count, True)
        }

    def to_dict(self) -> dict[str, Any]:
        kind = {
            "zoo_model": "",
            "has_two_towers": isinstance(self, Towers),
            "begins_with_towers": isinstance(self, MatcherRecipe),
        }
        return kind | asdict(self)

    def differing(self, made_by: Mapping[str, object]) -> list[str]:
        """Returns the names of the fields in which another recipe's manifest differs.

        A manifest from before a field existed counts as having its default, which is how it ran. A
        field that no longer exists always differs; one that only other kinds of run read does not.
        """
        ours = self.to_dict()
        defaults = {each.name: each.default for each in fields(self)}
        theirs = defaults | {"begins_with_towers": False} | dict(made_by)
        unread = set[str]().union(*map(_names, KINDS)) - ours.keys()
        return sorted(
            name for name in theirs.keys() - unread if ours.get(name, MISSING) != theirs[name]
        )


@dataclass(frozen=True, kw_only=True)
class TowerRates(Recipe):
    """How two towers learn, which a checkpoint that a run continues may be."""

    head_learning_rate: Rate = 1e-3
    """Of two towers' image side and projections; `learning_rate` is the text encoder's."""
    has_frozen_text: bool = False
    """Keep the published text encoder of two towers as it is."""
    late_learning_rate: Rate = 1e-4
    """Of the late blocks of image_source efficientnet_lite0_early."""
    word_drop_share: Annotated[float, (0.0, 0.9)] = 0.0
    """Share of a caption's words that two towers do not see in a step."""
    learns_temperature: bool = False
    """Learn the temperature of the in-batch softmax, from `softmax_temperature` on."""


@dataclass(frozen=True, kw_only=True)
class Rounds(TowerRates):
    """How an encoder learns in rounds, after its image backbone."""

    backbone_step_count: Count
    """Steps in which the image backbone learns before the rounds: by labelling the drawings of
    scenes, or together with the BE on another corpus (backbone_lessons.py)."""
    backbone_batch_size: Some
    backbone_learning_rate: Rate
    be_steps_per_round: Count = 1
    be_batch_size: Batch
    """Pairs a step, each of a different family, so negatives come from other families."""
    softmax_round_count: Count
    """Rounds of in-batch softmax for the BE before the batch-hard triplet takes over."""
    softmax_temperature: Annotated[float, (1e-3, 100.0)]
    margin: Annotated[float, (0.0, 2.0)]
    accumulation_step_count: Some = 1
    """Micro-batches of the sizes above whose mean gradient makes one step."""
    mined_from_round_count: Count = 0
    """Rounds before the first mining; with random weights the nearest negatives are arbitrary."""
    mined_refresh_round_count: Count = 0
    """Rounds between minings; 0 mines nothing."""
    mined_neighbour_count: Some = 50
    """Nearest wrong texts per image, and images per text, to draw negatives from."""
    ance_steps_per_round: Count = 0
    """Steps of the triplet loss over mined negatives, after the first mining."""
    ance_batch_size: Some = 16
    ance_negative_count: Some = 7
    """Mined texts per pair, and as many mined images."""

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        uses_mined = self.ance_steps_per_round > 0 or getattr(self, "mined_negative_share", 0) > 0
        if uses_mined and not self.mined_refresh_round_count:
            yield "draws mined negatives and never mines: set mined_refresh_round_count"
        if uses_mined and not self.trains_be:
            yield "mines by the BE, which it does not train"

    def mines_before(self, round_number: int) -> bool:
        """Returns whether negatives are mined, or mined again, before this round."""
        late = round_number - 1 - self.mined_from_round_count
        period = self.mined_refresh_round_count
        return period > 0 and late >= 0 and late % period == 0

    def uses_in_order(self, *, is_mined: bool) -> tuple[str, ...]:
        """Returns what each step of a round trains: "be", "mlm", "ce" or "ance".

        The ANCE step comes between the CE's, as in Geigle et al.: BE, CE, ANCE, CE.
        """
        be, mlm, ce, ance = (
            (use,) * getattr(self, f"{use}_steps_per_round", 0)
            for use in ("be", "mlm", "ce", "ance")
        )
        return be + mlm + ce[:1] + (ance if is_mined else ()) + ce[1:]


@dataclass(frozen=True, kw_only=True)
class JointRecipe(Rounds):
    """How a joint model is trained: BE and CE on one set of weights."""

    embedding_pooling: Pooling = "mean"
    """What the BE embeds: the mean of all positions, or [CLS] (Geigle et al. 2022, footnote 7)."""
    ce_steps_per_round: Count
    ce_family_count: Batch
    """Families a step; each of their scenes gives one match and one mismatch."""
    random_negative_round_count: Count
    """Rounds before mismatches come from siblings; with siblings from the start, the CE stays at
    chance."""
    sibling_negative_share: Share
    """Share of the later mismatches that are a sibling's caption."""
    pair_loss: PairLoss = "classification"
    """What the CE learns by: telling matches from mismatches, or by a triplet's hinge that puts
    each match above its mismatch."""
    pair_margin: Share = 0.2
    """Of that hinge, between probabilities."""
    mined_negative_share: Share = 0.0
    """Share of the CE's mismatches that are mined, after the first mining."""
    mlm_steps_per_round: Count = 0
    """Of masked language modelling (masked_words.py)."""
    mlm_batch_size: Some = 64
    mlm_masked_share: Share = 0.5
    """Average share of a text's tokens that are masked."""

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if self.begins_trained and self.embedding_pooling != "mean":
            yield (
                f"has embedding_pooling {self.embedding_pooling}, which a trained checkpoint fixes "
                "itself: leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class CooperativeRecipe(JointRecipe):
    """How a published model is trained as it is; its folder has the shape, whatever fields say."""

    mode: Mode = "joint"
    """One model for BE and CE in turn, two models one after the other, or one use alone."""
    has_checkpointing: bool = False
    """Compute the layers again in the backward pass, which needs less memory."""

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if changed := [name for name, value in _AS_PUBLISHED if getattr(self, name) != value]:
            yield f"trains a published model as it is: leave {', '.join(changed)} out"

    def parts(self) -> dict[str, "CooperativeRecipe"]:
        """Returns the run of each model, by the name of its folder, which is empty for one."""
        if self.mode == "separate":
            return {use: replace(self, mode=use).parts()[""] for use in ("be", "ce")}
        if self.mode == "be":
            return {"": replace(self, ce_steps_per_round=0)}
        return {"": replace(self, be_steps_per_round=0) if self.mode == "ce" else self}


@dataclass(frozen=True, kw_only=True)
class MatcherSteps(Recipe):
    """How the matcher of two towers learns."""

    matcher_has_towers: bool = False
    """Whether the matcher learns with a text encoder and an image side of its own."""
    matcher_layer_count: Count = 0
    """Last layers of which such a text encoder has its own. It shares the layers before them, and
    the late blocks of the image side, with the BE; 0 shares nothing."""
    matcher_batch_size: Batch = 48
    """Pictures a step, each with one caption; all their pairs are scored."""
    matcher_learning_rate: Rate = 5e-4
    matcher_neighbour_count: Some = 8
    """Pictures with similar captions that are drawn together; 1 draws all at random."""


@dataclass(frozen=True, kw_only=True)
class Towers(TowerRates, MatcherSteps):
    """The shape of two towers that embed text and picture apart, and of their matcher."""

    embedding_width: Annotated[int, (0, 65_536)] = 0
    """Of two towers; 0 means `width`."""
    head_width: Annotated[int, (8, 65_536)] = 384
    """Inner width of the image side of two towers."""
    head_dropout: Dropout = 0.0
    matcher_width: Annotated[int, (0, 65_536)] = 0
    """Width of what the matcher of two towers compares; 0 trains none."""
    matcher_step_count: Count = 0

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if self.matcher_step_count and not self.matcher_width:
            yield "has steps for a matcher and none to train: set matcher_width"


@dataclass(frozen=True, kw_only=True)
class TowersRecipe(Rounds, Towers):
    """How two towers are trained, and after the rounds their matcher."""


@dataclass(frozen=True, kw_only=True)
class MatcherRecipe(Towers):
    """How a matcher is trained over the frozen towers of a Tandem checkpoint."""

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if not self.matcher_step_count:
            yield "takes trained towers as they are, and trains no matcher: set matcher_step_count"
        if self.matcher_has_towers and not self.matcher_layer_count:
            yield (
                "takes trained towers, and a matcher that shares nothing with them begins with a "
                "published encoder: set matcher_layer_count"
            )


@dataclass(frozen=True, kw_only=True)
class ZooRecipe(Recipe):
    """How a network of the zoo is trained (tandem/lab/zoo)."""

    zoo_model: ZooName
    zoo_text_reader: TextReader = "gru"
    """What reads its words: a GRU, or BERT's layers, which `pretrained` may start."""
    hinges: Hinges = "hardest"
    """Which hinges it learns by: of the hardest negative, or of all."""
    all_hinges_round_count: Count = 0
    """Rounds by all hinges, before those of the hardest negatives take over."""
    margin: Annotated[float, (0.0, 2.0)]
    be_batch_size: Batch
    embedding_width: Annotated[int, (0, 65_536)] = 0
    """Width of what is compared; 0 means `width`."""
    head_learning_rate: Rate = 1e-3
    """Of everything but a published text encoder, whose rate is `learning_rate`."""
    has_frozen_text: bool = False
    """Keep a published text encoder as it is."""

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if self.image_source == "grid" and not self.begins_with_backbone:
            yield (
                "has a network of the zoo over a grid of random weights, which would not learn: "
                "set begins_with_backbone, or take another image source"
            )


KINDS: Mapping[type[Recipe], str] = {
    JointRecipe: "a joint model",
    CooperativeRecipe: "a published model",
    TowersRecipe: "two towers",
    MatcherRecipe: "a matcher over trained towers",
    ZooRecipe: "a network of the zoo",
}

Kind = TypeVar("Kind", bound=Recipe)


def check_read(recipe: Recipe, names: Iterable[str]) -> None:
    """Raises ValueError for a field that only other kinds of run read."""
    for name in names:
        readers = [what for kind, what in KINDS.items() if name in _names(kind)]
        if readers and name not in _names(type(recipe)):
            raise ValueError(
                f"{name} would be ignored: recipe {recipe.name} trains {KINDS[type(recipe)]}, and "
                f"only {' and '.join(readers)} read it; drop it, or take another recipe"
            )


def of_kind(kind: type[Kind], recipe: Recipe, **changes: Any) -> Kind:  # noqa: ANN401
    """Returns a recipe of another kind with the fields that both have, and these changes."""
    shared = _names(kind) & _names(type(recipe))
    return kind(**({name: getattr(recipe, name) for name in shared} | changes))


def _names(kind: type[Recipe]) -> set[str]:
    return {each.name for each in fields(kind)}


def on_corpus(recipe: Kind, corpus: str) -> Kind:
    """Returns a recipe for scenes, adapted to any other corpus.

    Siblings share captions there, so each family gives the CE only one match and one mismatch; the
    recipe takes `FAMILY_SIZE` times as many families to keep the batch size, and as many more for
    dev. Only the backbone of a fresh grid learns before the rounds, from the corpus itself.
    """
    changes: dict[str, Any] = {"corpus": corpus}
    changes["vocabulary_size"] = max(recipe.vocabulary_size, 8_000)
    changes["dev_family_count"] = recipe.dev_family_count * FAMILY_SIZE
    if recipe.learns_backbone and (recipe.image_source != "grid" or recipe.begins_trained):
        changes["backbone_step_count"] = 0
    if isinstance(recipe, JointRecipe):
        changes["ce_family_count"] = recipe.ce_family_count * FAMILY_SIZE
        changes |= {"random_negative_round_count": 0, "sibling_negative_share": 0.0}
    return replace(recipe, **changes)


def in_rounds(recipe: Kind, round_count: int) -> Kind:
    """Returns the recipe with `round_count` rounds and everything counted in rounds scaled alike.

    So are a matcher's steps and the warm-up. The number of minings stays the same.
    """
    if round_count < 1:
        raise ValueError(f"round_count is {round_count}; it must be at least 1")
    scaled = {
        each.name: -(-getattr(recipe, each.name) * round_count // recipe.round_count)
        for each in fields(recipe)
        if each.name.endswith("_round_count")
        or each.name in ("matcher_step_count", "warm_up_step_count")
    }
    return replace(recipe, round_count=round_count, **scaled)
