"""Named recipes: a function returns the whole configuration of a run.

A recipe and its seed say all that shaped a checkpoint; both are written beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tandem.corpus.scenes.records import FAMILY_SIZE
from tandem.modeling.config import ImageSource


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
    """Steps in which the image backbone learns, before the rounds: by labelling drawings, or from a
    corpus of one's own, together with the BE (pair_lesson.py)."""
    backbone_batch_size: int
    """Pictures a step."""
    backbone_learning_rate: float
    pool_family_count: int
    """Families whose image tokens are computed once and trained on."""
    round_count: int
    """A round is `be_steps_per_round` for the BE and then `ce_steps_per_round` for the CE."""
    ce_steps_per_round: int
    be_batch_size: int
    """Pairs a step, each of another family, so the negatives are other families'."""
    ce_family_count: int
    """Families a step; each of their scenes gives one match and one mismatch."""
    softmax_round_count: int
    """Rounds of in-batch softmax for the BE before the batch-hard triplet takes over."""
    softmax_temperature: float
    random_negative_round_count: int
    """Rounds before mismatches come from siblings; from the start, the CE never leaves chance."""
    sibling_negative_share: float
    """Of the mismatches after that, how many are a sibling's caption."""
    learning_rate: float
    weight_decay: float
    margin: float
    gradient_clip_norm: float
    dev_family_count: int
    dev_every_round_count: int
    be_steps_per_round: int = 1
    pretrained: str = ""
    """The folder or hub name of a published encoder to begin from, which then says `width`,
    `layer_count`, `head_count` and `vocabulary_size`; empty begins at random."""
    pretrained_weights_sha256: str = ""
    """Of its files, since a folder's name says little; filled in when the run starts."""
    has_half_the_layers: bool = False
    """Of the published encoder, every second layer from the first."""
    begins_trained: bool = False
    """With a checkpoint of ours, which then says the shape."""
    begins_with_backbone: bool = False
    """The image backbone is that of a checkpoint of ours, frozen, as the papers' detector is."""
    image_source: ImageSource = "grid"
    accumulation_step_count: int = 1
    """Micro-batches, each as large as said above, whose mean gradient makes one step."""
    mined_from_round_count: int = 0
    """Rounds before the first mining; at random weights the nearest wrong ones are anyone."""
    mined_refresh_round_count: int = 0
    """Rounds from one mining to the next; 0 mines nothing."""
    mined_neighbour_count: int = 50
    """Nearest wrong texts of each image, and images of each text, to draw negatives from."""
    mined_negative_share: float = 0.0
    """Of the CE's mismatches after the first mining, how many are mined."""
    ance_steps_per_round: int = 0
    """Steps of the triplet loss over mined negatives, after the first mining."""
    ance_batch_size: int = 16
    """Pairs a step."""
    ance_negative_count: int = 7
    """Mined texts and as many mined images for each pair."""

    mlm_steps_per_round: int = 0
    """Steps of telling masked words from the rest of the text and its image (masked_words.py)."""
    mlm_batch_size: int = 64
    """Pairs a step, each of another family."""
    mlm_masked_share: float = 0.5
    """Of a text's tokens, how many are masked, on average."""

    corpus: str = "scenes"
    """Its name or path."""
    corpus_sha256: str = ""
    """Of what is read of its records; filled in when the run starts, but for scenes, which follow
    from the seed."""
    regions_sha256: str = ""
    """Of the file of regions that is read for pixels; filled in when the run starts."""
    init_weights_sha256: str = ""
    """Of the checkpoint that training began with; empty for random weights."""
    precision: str = "bf16"
    """Of products of matrices: bf16, or fp32 to compare runs closely."""

    def __post_init__(self) -> None:
        if self.precision not in ("bf16", "fp32"):
            raise ValueError(f"recipe {self.name} has precision {self.precision!r}: bf16 or fp32")
        if self.begins_with_backbone and (self.backbone_step_count or self.begins_trained):
            raise ValueError(
                f"recipe {self.name} takes a trained image backbone as it is: "
                "set backbone_step_count to 0 and begins_trained to False"
            )
        if self.begins_trained and self.has_half_the_layers:
            raise ValueError(
                f"recipe {self.name} has half the layers of a published encoder, and a checkpoint "
                "of ours goes on whole: leave --init out"
            )
        uses_mined = self.ance_steps_per_round > 0 or self.mined_negative_share > 0
        if uses_mined and not self.mined_refresh_round_count:
            raise ValueError(
                f"recipe {self.name} draws mined negatives and never mines: "
                "set mined_refresh_round_count"
            )
        if uses_mined and not self.trains_be:
            raise ValueError(f"recipe {self.name} mines by the BE, which it does not train")

    @property
    def trains_be(self) -> bool:
        """Whether the model learns to embed."""
        return self.be_steps_per_round > 0

    @property
    def trains_ce(self) -> bool:
        """Whether the model learns to match."""
        return self.ce_steps_per_round > 0

    def mines_before(self, round_number: int) -> bool:
        """Returns whether negatives are mined, first or anew, before this round."""
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
    def batch_family_count(self) -> int:
        """The most families that a step of a round draws from."""
        by_use = {
            "be": self.be_batch_size,
            "mlm": self.mlm_batch_size,
            "ce": self.ce_family_count,
            "ance": self.ance_batch_size,
        }
        return max(by_use[use] for use in self.uses_in_order(is_mined=True))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for a manifest."""
        return asdict(self)

    def differing(self, made_by: Mapping[str, object]) -> list[str]:
        """Returns the fields that another recipe's manifest has otherwise, by name.

        A manifest from before a field was there is taken as its default, by which it was made; a
        field that is there no more differs, for what it did is not known.
        """
        ours = self.to_dict()
        theirs = {field.name: field.default for field in fields(self)} | dict(made_by)
        return sorted(name for name in theirs if name not in ours or ours[name] != theirs[name])


NamedRecipe = Callable[[int], Recipe]
"""From a seed to the configuration of a run; some vary another one, their base."""


def default(seed: int = 1) -> Recipe:
    """The model that ships: about an hour on two CPU cores.

    The masked words are what makes its CE tell sides apart (decision 35).
    """
    return Recipe(
        name="default",
        seed=seed,
        width=192,
        layer_count=4,
        head_count=4,
        vocabulary_size=1_500,
        backbone_step_count=700,
        backbone_batch_size=64,
        backbone_learning_rate=2e-3,
        pool_family_count=12_000,
        round_count=2_400,
        ce_steps_per_round=2,
        be_batch_size=64,
        ce_family_count=16,
        softmax_round_count=500,
        softmax_temperature=0.07,
        random_negative_round_count=150,
        sibling_negative_share=0.7,
        learning_rate=5e-4,
        weight_decay=0.05,
        margin=0.1,
        gradient_clip_norm=1.0,
        dev_family_count=125,
        dev_every_round_count=150,
        mlm_steps_per_round=3,
    )


def compact(seed: int = 1) -> Recipe:
    """A fifth of the default's arithmetic: for experiments of many runs on two CPU cores.

    Two thirds as wide, three eighths of the rounds, a third of the families, and the shipped
    model's image backbone, so that runs differ in what they are to compare and none pays for its
    own. The CE's pairs come as twice as many steps of half as many, which was 3 to 7 points better
    for it (benchmarks/results/train_grid_first_2026-11-22.md).
    """
    return replace(
        default(seed),
        name="compact",
        width=128,
        pool_family_count=4_000,
        begins_with_backbone=True,
        backbone_step_count=0,
        round_count=900,
        ce_steps_per_round=4,
        ce_family_count=8,
        softmax_round_count=300,
        learning_rate=1e-3,
        dev_family_count=50,
        dev_every_round_count=150,
    )


def bi_encoder(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """The BE alone, for Sep+Coop: as much of its own training as the joint model gives it.

    With the masked words, as both of the paper's models begin with an encoder that learned by them.
    """
    return replace(_variant("bi_encoder", base(seed)), ce_steps_per_round=0)


def cross_encoder(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """The CE alone, for Sep+Coop: as much of its own training as the joint model gives it.

    Nothing retrieves for it, so dev pairs each text with every image of a smaller set.
    """
    return replace(
        _variant("cross_encoder", base(seed)),
        be_steps_per_round=0,
        softmax_round_count=0,
        dev_family_count=25,
    )


def cross_encoder_after_be(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """The CE alone, as above, but from the weights of a trained BE.

    `--init` says which; without it the run begins with the shipped model, which is a CE already.
    The paper's two models both begin with a published encoder that knows what words look like. From
    random weights a CE alone has that still to learn, of pairs that differ in one fact.
    """
    return replace(
        cross_encoder(seed, base),
        name=_variant("cross_encoder_after_be", base(seed)).name,
        begins_trained=True,
        begins_with_backbone=False,
        backbone_step_count=0,
    )


def half(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """Joint with half the layers (Geigle et al. 2022, figure 4).

    The paper drops every second layer of a pretrained encoder, and with `pretrained` so does this;
    from random weights there is none to drop. Raises ValueError for a base whose layers cannot be
    halved.
    """
    whole = base(seed)
    if whole.layer_count % 2:
        raise ValueError(f"recipe {whole.name} has {whole.layer_count} layers: no half of them")
    return replace(
        _variant("half", whole), layer_count=whole.layer_count // 2, has_half_the_layers=True
    )


def ance(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """Joint, with mined negatives for BE and CE in the later rounds (arXiv v1, appendix A.3).

    The paper saw no gain; without masked words we did (decision 35). The share, the batch and the
    negatives are its own; when mining begins and how often are ours, as we begin from random
    weights.
    """
    plain = base(seed)
    return replace(
        _variant("ance", plain),
        mined_from_round_count=plain.round_count * 5 // 12,
        mined_refresh_round_count=plain.round_count * 5 // 24,
        mined_negative_share=0.05,
        ance_steps_per_round=1,
    )


def no_masked_words(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """Joint by BE and CE steps alone: what the masked words are worth."""
    return replace(_variant("no_masked_words", base(seed)), mlm_steps_per_round=0)


def random_negatives(seed: int = 1, base: NamedRecipe = default) -> Recipe:
    """Joint, whose CE never sees a sibling as its mismatch: what harder negatives are worth."""
    return replace(_variant("random_negatives", base(seed)), sibling_negative_share=0.0)


def small(seed: int = 1) -> Recipe:
    """A smaller model, long enough to see its CE reach its BE: for `make train-demo`.

    It stays with the in-batch softmax, at twice the default's rate, as there are fewer rounds.
    """
    return replace(
        default(seed),
        name="small",
        width=128,
        layer_count=3,
        backbone_step_count=220,
        pool_family_count=4_000,
        round_count=850,
        softmax_round_count=850,
        random_negative_round_count=100,
        learning_rate=1e-3,
        dev_family_count=50,
        dev_every_round_count=50,
    )


def minilm(seed: int = 1) -> Recipe:
    """From a published sentence encoder, whose words have their meanings before the first round.

    Image tokens have none yet, so the order is that of a run from nothing (decision 7). The rate is
    a fifth, to keep what is known; neither it nor the rounds are tuned.
    """
    return replace(
        default(seed),
        name="minilm",
        pretrained="sentence-transformers/all-MiniLM-L6-v2",
        width=384,
        layer_count=6,
        head_count=12,
        vocabulary_size=30_522,
        learning_rate=1e-4,
    )


def half_minilm(seed: int = 1) -> Recipe:
    """The same with layers 0, 2 and 4 (Geigle et al. 2022, figure 4)."""
    return replace(minilm(seed), name="half_minilm", has_half_the_layers=True, layer_count=3)


def tiny(seed: int = 1) -> Recipe:
    """A model that learns next to nothing, in seconds: for tests of everything around it.

    In fp32: where a CPU has no bf16, torch emulates it, and these rounds take five times as long.
    """
    return replace(
        default(seed),
        name="tiny",
        width=32,
        layer_count=1,
        head_count=2,
        backbone_step_count=2,
        backbone_batch_size=8,
        pool_family_count=16,
        round_count=4,
        ce_steps_per_round=1,
        be_batch_size=8,
        ce_family_count=2,
        softmax_round_count=2,
        random_negative_round_count=2,
        dev_family_count=4,
        dev_every_round_count=4,
        mlm_steps_per_round=0,
        precision="fp32",
    )


def finetune(corpus: str, round_count: int, seed: int = 1, backbone_step_count: int = 0) -> Recipe:
    """A checkpoint trained further on a corpus; its shape is the checkpoint's.

    In-batch softmax throughout: on emoji, which are far from scenes, the batch-hard triplet neared
    twice its margin within 20 rounds, where embeddings fall into one point, while 45 rounds of
    softmax took BE R@1 from 1.2 to 4.9 (82 dev texts, one seed: a look, not a tuning). Siblings
    share captions, so each family gives the CE one match and one mismatch.
    """
    return replace(
        default(seed),
        name="finetune",
        corpus=corpus,
        begins_trained=True,
        backbone_step_count=backbone_step_count,
        backbone_learning_rate=1e-3,
        round_count=round_count,
        ce_family_count=64,
        softmax_round_count=round_count,
        random_negative_round_count=0,
        sibling_negative_share=0.0,
        learning_rate=3e-4,
        dev_family_count=100,
        dev_every_round_count=20,
        mlm_steps_per_round=0,
    )


def on_corpus(recipe: Recipe, corpus: str) -> Recipe:
    """Returns a recipe for scenes as one for a corpus of one's own.

    Siblings share captions there: each family gives the CE one match and one mismatch, of another
    family or mined, so that it takes as many families as scenes would have been; and dev has one
    text of each. A learned vocabulary has room for more words. Only a fresh grid's backbone learns
    before the rounds, by the corpus itself.
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
    """Returns the recipe in so many rounds, all that it counts in rounds in the same proportion.

    A tenth of a recipe that mines mines as often. Raises ValueError for no rounds.
    """
    if round_count < 1:
        raise ValueError(f"round_count is {round_count}; there must be 1 at least")

    def scaled(count: int) -> int:
        return -(-count * round_count // recipe.round_count)

    return replace(
        recipe,
        round_count=round_count,
        softmax_round_count=scaled(recipe.softmax_round_count),
        random_negative_round_count=scaled(recipe.random_negative_round_count),
        mined_from_round_count=scaled(recipe.mined_from_round_count),
        mined_refresh_round_count=scaled(recipe.mined_refresh_round_count),
        dev_every_round_count=scaled(recipe.dev_every_round_count),
    )


def _variant(name: str, base: Recipe) -> Recipe:
    """Returns the base under the name; one that is not the default says so."""
    return replace(base, name=name if base.name == "default" else f"{base.name}_{name}")


RECIPES: Mapping[str, NamedRecipe] = {
    recipe.__name__: recipe
    for recipe in (
        ance,
        compact,
        default,
        bi_encoder,
        cross_encoder,
        cross_encoder_after_be,
        half,
        minilm,
        half_minilm,
        no_masked_words,
        random_negatives,
        small,
        tiny,
    )
}


def recipe_named(name: str, seed: int) -> Recipe:
    """Returns the recipe; raises ValueError for a name that is none."""
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    return RECIPES[name](seed)
