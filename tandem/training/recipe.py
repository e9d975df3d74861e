"""Defines a recipe: the complete configuration of a training run.

A recipe and its seed determine a checkpoint; both are written into its training.json. The named
ones are in recipes.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from tandem.corpus.scenes.records import FAMILY_SIZE
from tandem.modeling.config import ImageSource, PictureFit, Pooling
from tandem.training.recipe_ranges import check_ranges
from tandem.zoo.config import TextReader, ZooName

DevScore = Literal["text_to_image", "mean_recall"]
Decay = Literal["linear", "cosine"]
PairLoss = Literal["classification", "triplet"]
Hinges = Literal["hardest", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a joint model is trained."""

    name: str
    seed: int
    width: int
    layer_count: int
    head_count: int
    vocabulary_size: int
    backbone_step_count: int
    """Steps in which the image backbone learns before the rounds: by labelling the drawings of
    scenes (label_lesson.py), or together with the BE on another corpus (pair_lesson.py)."""
    backbone_batch_size: int
    """Pictures a step."""
    backbone_learning_rate: float
    pool_family_count: int
    """Families whose image tokens are computed once and trained on."""
    round_count: int
    """A round is `be_steps_per_round` for the BE and then `ce_steps_per_round` for the CE."""
    ce_steps_per_round: int
    be_batch_size: int
    """Pairs a step, each of a different family, so negatives come from other families."""
    ce_family_count: int
    """Families a step; each of their scenes gives one match and one mismatch."""
    softmax_round_count: int
    """Rounds of in-batch softmax for the BE before the batch-hard triplet takes over."""
    softmax_temperature: float
    random_negative_round_count: int
    """Rounds before mismatches come from siblings; with siblings from the start, the CE stays at
    chance."""
    sibling_negative_share: float
    """Share of the later mismatches that are a sibling's caption."""
    learning_rate: float
    weight_decay: float
    margin: float
    gradient_clip_norm: float
    dev_family_count: int
    dev_every_round_count: int
    be_steps_per_round: int = 1
    pretrained: str = ""
    """Folder or hub name of a published encoder to begin from, which then sets `width`,
    `layer_count`, `head_count` and `vocabulary_size`; empty begins with random weights."""
    pretrained_weights_sha256: str = ""
    """Digest of its weight files; filled in when the run starts."""
    has_half_the_layers: bool = False
    """Take every second layer of the published encoder, from the first."""
    begins_trained: bool = False
    """Begin from a checkpoint of ours, which then sets the shape."""
    begins_with_backbone: bool = False
    """Take the image backbone of a checkpoint of ours and keep it frozen, as the papers keep their
    detector."""
    begins_with_towers: bool = False
    """Take the two towers that embed from a checkpoint of ours, as they are: there are no rounds,
    and only a matcher over them is trained."""
    image_source: ImageSource = "grid"
    vision: str = ""
    """Folder or hub name of the network of image_source vision_tower."""
    vision_weights_sha256: str = ""
    """Digest of its weights; filled in when the run starts."""
    image_size: int = 112
    """Side in pixels, unless the run begins with a checkpoint's image backbone."""
    picture_fit: PictureFit = "letterbox"
    """How a picture becomes a square."""
    view_count: int = 1
    """Views of each training picture: the picture, its mirror image, and crops
    (picture_views.py)."""
    view_stretch: float = 0.0
    """Largest natural logarithm of the factor between a crop's aspect and its picture's; 0 keeps
    the picture's aspect."""

    embedding_pooling: Pooling = "mean"
    """What the BE embeds: the mean of all positions, or [CLS] (Geigle et al. 2022, footnote 7)."""
    pair_loss: PairLoss = "classification"
    """What the CE learns by: telling matches from mismatches, or by a triplet's hinge that puts
    each match above its mismatch."""
    pair_margin: float = 0.2
    """Of that hinge, between probabilities."""
    has_two_towers: bool = False
    """Embed text and picture apart (two_towers.py), and after the rounds train a matcher."""
    embedding_width: int = 0
    """Of two towers; 0 means `width`."""
    head_width: int = 384
    """Inner width of the image side of two towers."""
    head_dropout: float = 0.0
    """Dropout there."""
    head_learning_rate: float = 1e-3
    """Of two towers' image side and projections; `learning_rate` is the text encoder's."""
    has_frozen_text: bool = False
    """Keep the published text encoder of two towers as it is."""
    zoo_model: str = ""
    """A network of the zoo to train instead of a joint model (tandem/zoo), by name."""
    zoo_text_reader: TextReader = "gru"
    """What reads its words: a GRU, or BERT's layers, which `pretrained` may start."""
    hinges: Hinges = "hardest"
    """Which hinges a network of the zoo learns by: of the hardest negative, or of all."""
    all_hinges_round_count: int = 0
    """Rounds by all hinges, before those of the hardest negatives take over."""
    learns_temperature: bool = False
    """Learn the temperature of the in-batch softmax, from `softmax_temperature` on."""
    held_out_family_count: int = 0
    """Families of the training split that are held out, to pick the checkpoint and the fusion by;
    0 takes the split `val` for that."""
    held_out_picture_count: int = 0
    """Pictures of the training split that are held out instead, one of each of so many families.
    Their other pictures are learned from: dev then has new pictures of what the model knows."""
    matcher_width: int = 0
    """Width of what the matcher of two towers compares; 0 trains none."""
    matcher_has_towers: bool = False
    """Whether the matcher learns with a text encoder and an image side of its own."""
    matcher_layer_count: int = 0
    """Last layers of which such a text encoder has its own. It shares the layers before them, and
    the late blocks of the image side, with the BE; 0 shares nothing."""
    late_learning_rate: float = 1e-4
    """Of the late blocks of image_source efficientnet_lite0_early."""
    word_drop_share: float = 0.0
    """Share of a caption's words that two towers do not see in a step."""
    matcher_step_count: int = 0
    matcher_batch_size: int = 48
    """Pictures a step, each with one caption; all their pairs are scored."""
    matcher_learning_rate: float = 5e-4
    matcher_neighbour_count: int = 8
    """Pictures with similar captions that are drawn together; 1 draws all at random."""
    warm_up_step_count: int = 100
    """Steps, at most a tenth of them, in which the learning rate rises to its full value."""
    learning_rate_decay: Decay = "linear"
    """How the learning rate then falls to 0."""
    adam_epsilon: float = 1e-8
    adam_beta2: float = 0.999
    """Decay of the average of squared gradients; smaller forgets sooner."""
    dropout: float = 0.0
    """Of the encoder in training, unless it begins from a checkpoint of ours."""
    dev_score: DevScore = "text_to_image"
    """What the best checkpoint is picked by: `text_to_image` takes R@1 and R@10 of the BE and R@1
    of the CE in that direction, `mean_recall` takes R@1, R@5 and R@10 of both directions."""
    accumulation_step_count: int = 1
    """Micro-batches of the sizes above whose mean gradient makes one step."""
    mined_from_round_count: int = 0
    """Rounds before the first mining; with random weights the nearest negatives are arbitrary."""
    mined_refresh_round_count: int = 0
    """Rounds between minings; 0 mines nothing."""
    mined_neighbour_count: int = 50
    """Nearest wrong texts per image, and images per text, to draw negatives from."""
    mined_negative_share: float = 0.0
    """Share of the CE's mismatches that are mined, after the first mining."""
    ance_steps_per_round: int = 0
    """Steps of the triplet loss over mined negatives, after the first mining."""
    ance_batch_size: int = 16
    """Pairs a step."""
    ance_negative_count: int = 7
    """Mined texts per pair, and as many mined images."""

    mlm_steps_per_round: int = 0
    """Steps of masked language modelling (masked_words.py)."""
    mlm_batch_size: int = 64
    """Pairs a step, each of a different family."""
    mlm_masked_share: float = 0.5
    """Average share of a text's tokens that are masked."""

    corpus: str = "scenes"
    """Name or path of what is trained on."""
    languages: str = ""
    """Languages of the captions that are read, separated by commas; empty reads all of them."""
    corpus_sha256: str = ""
    """Digest of the records that are read; filled in when the run starts, except for scenes, which
    follow from the seed."""
    regions_sha256: str = ""
    """Digest of the file of regions that replaces pixels; filled in when the run starts."""
    init_weights_sha256: str = ""
    """Digest of the checkpoint that training began with; empty for random weights."""
    precision: str = "bf16"
    """Of matrix products: bf16, or fp32 to compare runs closely."""

    def __post_init__(self) -> None:
        check_ranges(self.to_dict())
        for conflict in self._conflicts():
            raise ValueError(f"recipe {self.name} {conflict}")

    def _conflicts(self) -> Iterator[str]:
        """Yields what is wrong with fields together, and what to do."""
        if self.precision not in ("bf16", "fp32"):
            yield f"has precision {self.precision!r}: bf16 or fp32"
        brings_network = self.begins_trained or self.begins_with_towers
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
        if self.has_two_towers and (self.trains_ce or self.mlm_steps_per_round):
            yield (
                "has two towers, whose rounds only train the BE: set ce_steps_per_round and "
                "mlm_steps_per_round to 0, and matcher_step_count instead"
            )
        fixes_pooling = self.has_two_towers or self.zoo_model or self.begins_trained
        if fixes_pooling and self.embedding_pooling != "mean":
            yield (
                f"has embedding_pooling {self.embedding_pooling}, which two towers, a network of "
                "the zoo and a trained checkpoint fix themselves: leave it out"
            )
        if self.zoo_model:
            yield from self._zoo_conflicts()
        if self.image_source == "efficientnet_lite0_early" and not self.has_two_towers:
            yield (
                "has image_source efficientnet_lite0_early, which two towers continue; take "
                "efficientnet_lite0"
            )
        if self.matcher_step_count and not (self.has_two_towers and self.matcher_width):
            yield "has steps for a matcher and none to train: set has_two_towers and matcher_width"
        if self.begins_with_towers and not self.matcher_step_count:
            yield "takes trained towers as they are, and trains no matcher: set matcher_step_count"
        if self.begins_with_towers and self.matcher_has_towers and not self.matcher_layer_count:
            yield (
                "takes trained towers, and a matcher that shares nothing with them begins with a "
                "published encoder: set matcher_layer_count"
            )
        if self.begins_with_backbone and (self.backbone_step_count or self.begins_trained):
            yield (
                "takes a trained image backbone as it is: set backbone_step_count to 0 and "
                "begins_trained to False"
            )
        if self.begins_trained and self.has_half_the_layers:
            yield (
                "has half the layers of a published encoder, and a checkpoint of ours keeps all of "
                "its layers: leave --init out"
            )
        uses_mined = self.ance_steps_per_round > 0 or self.mined_negative_share > 0
        if uses_mined and not self.mined_refresh_round_count:
            yield "draws mined negatives and never mines: set mined_refresh_round_count"
        if uses_mined and not self.trains_be:
            yield "mines by the BE, which it does not train"

    def _zoo_conflicts(self) -> Iterator[str]:
        if self.zoo_model not in get_args(ZooName):
            yield f"has zoo_model {self.zoo_model!r}; there are {', '.join(get_args(ZooName))}"
        if self.trains_ce or self.mlm_steps_per_round or self.has_two_towers:
            yield (
                "trains a network of the zoo, whose rounds have one step: set ce_steps_per_round "
                "and mlm_steps_per_round to 0, and has_two_towers to false"
            )
        if self.backbone_step_count or self.begins_trained:
            yield (
                "trains a network of the zoo over a frozen image backbone, and from random "
                "weights: leave --init and backbone steps out"
            )
        if self.image_source == "grid" and not self.begins_with_backbone:
            yield (
                "has a network of the zoo over a grid of random weights, which would not learn: "
                "set begins_with_backbone, or take another image source"
            )

    @property
    def trains_be(self) -> bool:
        """Whether the model learns to embed."""
        return self.be_steps_per_round > 0

    @property
    def trains_ce(self) -> bool:
        """Whether the model learns to match."""
        return self.ce_steps_per_round > 0

    @property
    def begins_with_checkpoint(self) -> bool:
        """Whether weights of a checkpoint of ours are its first, all of them or a part."""
        return self.begins_trained or self.begins_with_backbone or self.begins_with_towers

    @property
    def holds_out(self) -> bool:
        """Whether dev is a part of the training split."""
        return bool(self.held_out_family_count or self.held_out_picture_count)

    def mines_before(self, round_number: int) -> bool:
        """Returns whether negatives are mined, or mined again, before this round."""
        late = round_number - 1 - self.mined_from_round_count
        period = self.mined_refresh_round_count
        return period > 0 and late >= 0 and late % period == 0

    def measures_after(self, round_number: int) -> bool:
        """Returns whether dev recall is measured after this round, as it is after the last."""
        return round_number % self.dev_every_round_count == 0 or round_number == self.round_count

    def uses_in_order(self, *, is_mined: bool) -> tuple[str, ...]:
        """Returns what each step of a round trains: "be", "mlm", "ce" or "ance".

        The ANCE step comes between the CE's, as in Geigle et al.: BE, CE, ANCE, CE.
        """
        be, ce = ("be",) * self.be_steps_per_round, ("ce",) * self.ce_steps_per_round
        mlm = ("mlm",) * self.mlm_steps_per_round
        ance = ("ance",) * self.ance_steps_per_round if is_mined else ()
        return be + mlm + ce[:1] + ance + ce[1:]

    @property
    def batch_family_counts(self) -> dict[str, int]:
        """Families that one step draws from, by the field that says so."""
        by_use = {
            "be": "be_batch_size",
            "mlm": "mlm_batch_size",
            "ce": "ce_family_count",
            "ance": "ance_batch_size",
        }
        uses = () if self.begins_with_towers else self.uses_in_order(is_mined=True)
        names = [by_use[use] for use in uses]
        if self.matcher_step_count:
            names.append("matcher_batch_size")
        if self.backbone_step_count:
            names.append("backbone_batch_size")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest."""
        return asdict(self)

    def differing(self, made_by: Mapping[str, object]) -> list[str]:
        """Returns the names of the fields in which another recipe's manifest differs.

        A manifest from before a field existed counts as having its default, which is how it ran. A
        field that no longer exists always differs, because its effect is unknown.
        """
        ours = self.to_dict()
        theirs = {field.name: field.default for field in fields(self)} | dict(made_by)
        return sorted(name for name in theirs if name not in ours or ours[name] != theirs[name])


def on_corpus(recipe: Recipe, corpus: str) -> Recipe:
    """Returns a recipe for scenes, adapted to any other corpus.

    Siblings share captions there, so each family gives the CE only one match and one mismatch, from
    another family or mined; the recipe takes `FAMILY_SIZE` times as many families to keep the batch
    size, and as many more for dev. The vocabulary has room for more words. Only the backbone of a
    fresh grid learns before the rounds, from the corpus itself.
    """
    learns_backbone = recipe.image_source == "grid" and not recipe.begins_trained
    return replace(
        recipe,
        corpus=corpus,
        vocabulary_size=max(recipe.vocabulary_size, 8_000),
        backbone_step_count=recipe.backbone_step_count if learns_backbone else 0,
        ce_family_count=recipe.ce_family_count * FAMILY_SIZE,
        random_negative_round_count=0,
        sibling_negative_share=0.0,
        dev_family_count=recipe.dev_family_count * FAMILY_SIZE,
    )


def in_rounds(recipe: Recipe, round_count: int) -> Recipe:
    """Returns the recipe with `round_count` rounds and everything counted in rounds scaled alike.

    So are a matcher's steps and the warm-up, which a shorter run would otherwise spend up to a
    tenth of its length in. The number of minings stays the same. Raises ValueError for no rounds.
    """
    if round_count < 1:
        raise ValueError(f"round_count is {round_count}; it must be at least 1")

    def scaled(count: int) -> int:
        return -(-count * round_count // recipe.round_count)

    return replace(
        recipe,
        round_count=round_count,
        softmax_round_count=scaled(recipe.softmax_round_count),
        all_hinges_round_count=scaled(recipe.all_hinges_round_count),
        random_negative_round_count=scaled(recipe.random_negative_round_count),
        mined_from_round_count=scaled(recipe.mined_from_round_count),
        mined_refresh_round_count=scaled(recipe.mined_refresh_round_count),
        matcher_step_count=scaled(recipe.matcher_step_count),
        warm_up_step_count=scaled(recipe.warm_up_step_count),
        dev_every_round_count=scaled(recipe.dev_every_round_count),
    )
