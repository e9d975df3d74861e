"""Names the recipes that `tandem train` knows: each function returns one complete configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tandem.lab.training.recipes.recipe import (
    CooperativeRecipe,
    JointRecipe,
    MatcherRecipe,
    Recipe,
    TowersRecipe,
    ZooRecipe,
    of_kind,
)

NamedRecipe = Callable[[int], Recipe]
NamedJoint = Callable[[int], JointRecipe]


def default(seed: int = 1) -> JointRecipe:
    """Trains the model that ships, in about an hour on two CPU cores.

    Without masked language modelling its CE does not distinguish left from right (decision 35).
    """
    return JointRecipe(
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


def compact(seed: int = 1) -> JointRecipe:
    """Trains with a fifth of the default's arithmetic, for experiments of many runs on two cores.

    All runs share the bundled model's image backbone, so they differ only in what they compare. The
    CE takes twice as many steps of half as many pairs, which was 3 to 7 points better for it
    (benchmarks/results/train_grid_first_2026-11-22.md).
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
    )


def bi_encoder(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains only a BE, for Sep+Coop, with as many BE steps as the joint model has.

    It keeps masked language modelling: the paper's encoders were pretrained with it.
    """
    return replace(_variant("bi_encoder", base(seed)), ce_steps_per_round=0)


def cross_encoder(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains only a CE, for Sep+Coop, with as many CE steps as the joint model has.

    Nothing retrieves for it, so dev pairs each text with every image of a smaller set.
    """
    return replace(
        _variant("cross_encoder", base(seed)),
        be_steps_per_round=0,
        softmax_round_count=0,
        dev_family_count=25,
    )


def cross_encoder_after_be(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains only a CE, from the weights of a trained BE that `--init` names.

    Both of the paper's models begin with a published encoder that knows what words look like. From
    random weights, a CE would have to learn that from pairs that differ in one fact.
    """
    return replace(
        cross_encoder(seed, base),
        name=_variant("cross_encoder_after_be", base(seed)).name,
        begins_trained=True,
        begins_with_backbone=False,
        backbone_step_count=0,
    )


def half(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model with half the layers (Geigle et al. 2022, figure 4).

    The paper drops every second layer of a pretrained encoder, as this does with `pretrained`; from
    random weights there is none to drop.
    """
    whole = base(seed)
    if whole.layer_count % 2:
        raise ValueError(f"recipe {whole.name} has {whole.layer_count} layers, an odd number")
    return replace(
        _variant("half", whole), layer_count=whole.layer_count // 2, has_half_the_layers=True
    )


def ance(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model with mined negatives in the later rounds.

    After Geigle et al. (arXiv v1, appendix A.3), who saw no gain; without masked language modelling
    we did (decision 35). The start and the frequency of mining are ours, for random weights.
    """
    plain = base(seed)
    return replace(
        _variant("ance", plain),
        mined_from_round_count=plain.round_count * 5 // 12,
        mined_refresh_round_count=plain.round_count * 5 // 24,
        mined_negative_share=0.05,
        ance_steps_per_round=1,
    )


def ance_triplets(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains `ance` with mined negatives only for the triplet loss (T_ANCE of Table 10).

    For only a BE (Table 9), set ce_steps_per_round to 0 as well.
    """
    name = _variant("ance_triplets", base(seed)).name
    return replace(ance(seed, base), name=name, mined_negative_share=0.0)


def ance_mismatches(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains `ance` with mined negatives only for the CE's mismatches (E_ANCE of Table 10)."""
    name = _variant("ance_mismatches", base(seed)).name
    return replace(ance(seed, base), name=name, ance_steps_per_round=0)


def no_masked_words(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model without masked language modelling, to measure its effect."""
    return replace(_variant("no_masked_words", base(seed)), mlm_steps_per_round=0)


def random_negatives(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model without sibling mismatches, to measure what hard negatives do."""
    return replace(_variant("random_negatives", base(seed)), sibling_negative_share=0.0)


def cls_pooling(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model to embed [CLS], not the mean (Geigle et al. 2022, footnote 7)."""
    return replace(_variant("cls_pooling", base(seed)), embedding_pooling="cls")


def pair_triplets(seed: int = 1, base: NamedJoint = default) -> JointRecipe:
    """Trains the joint model's CE by triplets instead of classification."""
    return replace(_variant("pair_triplets", base(seed)), pair_loss="triplet")


def small(seed: int = 1) -> JointRecipe:
    """Trains a smaller model, until its CE catches up with its BE (`make train-demo`)."""
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


def minilm(seed: int = 1) -> JointRecipe:
    """Trains from a published sentence encoder, which knows its words before the first round.

    The learning rate is a fifth of the default's, to keep what the encoder knows. Neither it nor
    the rounds are tuned.
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


def half_minilm(seed: int = 1) -> JointRecipe:
    """Trains `minilm` with layers 0, 2 and 4 only (Geigle et al. 2022, figure 4)."""
    return replace(minilm(seed), name="half_minilm", has_half_the_layers=True, layer_count=3)


def paper(seed: int = 1) -> JointRecipe:
    """Trains the joint model as Geigle et al. 2022 did theirs, from BERT over region features.

    Two things differ: their encoder, OSCAR, had seen pictures, and their dev set has five captions
    of each picture where ours has one.
    """
    return replace(
        default(seed),
        name="paper",
        pretrained="google-bert/bert-base-uncased",
        image_source="regions",
        width=768,
        layer_count=12,
        head_count=12,
        vocabulary_size=30_522,
        dropout=0.1,
        backbone_step_count=0,
        round_count=30_000,
        ce_steps_per_round=1,
        mlm_steps_per_round=0,
        be_batch_size=128,
        ce_family_count=32,
        softmax_round_count=0,
        random_negative_round_count=0,
        sibling_negative_share=0.0,
        learning_rate=2e-5,
        warm_up_step_count=0,
        adam_epsilon=1e-6,
        dev_family_count=250,
        dev_every_round_count=2_500,
        dev_score="mean_recall",
    )


def cooperative(seed: int = 1) -> CooperativeRecipe:
    """Trains a published vision-language model as it is, as Geigle et al. 2022 did theirs."""
    own = {"name": "cooperative", "pretrained": "", "image_source": "grid"}
    return of_kind(CooperativeRecipe, paper(seed), **own)


def two_towers(seed: int = 1) -> TowersRecipe:
    """Trains two towers without a matcher: a plain bi-encoder of photographs, as a baseline.

    MiniLM learns with a head over a frozen EfficientNet-Lite0's grid. On 6,000 pictures with five
    captions, 700 rounds are three epochs.
    """
    return of_kind(
        TowersRecipe,
        minilm(seed),
        name="two_towers",
        image_source="efficientnet_lite0",
        image_size=224,
        picture_fit="squash",
        embedding_width=512,
        backbone_step_count=0,
        round_count=700,
        be_batch_size=128,
        softmax_round_count=700,
        softmax_temperature=0.05,
        learns_temperature=True,
        learning_rate=6e-5,
        weight_decay=0.01,
        gradient_clip_norm=2.0,
        held_out_family_count=300,
        dev_every_round_count=100,
    )


def frozen_heads(seed: int = 1) -> TowersRecipe:
    """Trains `two_towers` with a frozen text encoder, the cheapest baseline."""
    return replace(two_towers(seed), name="frozen_heads", has_frozen_text=True)


def photographs(seed: int = 1) -> TowersRecipe:
    """Trains two towers and then a matcher on a corpus of photographs.

    The last five blocks of the picture network learn too. The matcher learns afterwards with towers
    of its own, from all pairs of 64 pictures; its logit is combined with the embeddings' cosine.
    """
    return replace(
        two_towers(seed),
        name="photographs",
        image_source="efficientnet_lite0_early",
        view_count=5,
        view_stretch=0.2,
        warm_up_step_count=70,
        learning_rate_decay="cosine",
        adam_beta2=0.98,
        dropout=0.1,
        head_dropout=0.1,
        word_drop_share=0.1,
        round_count=1_400,
        softmax_round_count=1_400,
        dev_every_round_count=140,
        matcher_width=256,
        matcher_has_towers=True,
        matcher_step_count=1_200,
        matcher_batch_size=64,
        matcher_neighbour_count=1,
    )


def photographs_joint(seed: int = 1) -> TowersRecipe:
    """Trains `photographs` as one model (Joint) whose matcher shares most of the towers.

    It has a grid trunk and its own copies of the text encoder's last two layers; all else is the
    bi-encoder's, stays as that learned it, and is in memory and computed once for both scores.
    """
    return replace(photographs(seed), name="photographs_joint", matcher_layer_count=2)


def joint_matcher(seed: int = 1) -> MatcherRecipe:
    """Trains only the matcher of `photographs_joint`, over a checkpoint's towers (`--init`)."""
    return of_kind(MatcherRecipe, photographs_joint(seed), name="joint_matcher")


def picture_dictionary(seed: int = 1) -> TowersRecipe:
    """Trains two towers and a matcher on the emoji, to find drawings of a style never seen.

    A drawing must be seen many times, so a round has 512 concepts, each with one drawing and
    caption. The drawings that are held out choose the weight of the cosine in a logit, because the
    bi-encoder knows much of them, as of an unseen style. The split `val`, whose concepts are never
    trained on, chose too small a weight (benchmarks/results/picture_dictionary_2026-11-28.md).
    """
    return replace(
        photographs(seed),
        name="picture_dictionary",
        corpus="emoji",
        image_source="efficientnet_lite0",
        image_size=128,
        picture_fit="letterbox",
        view_count=1,
        has_frozen_text=True,
        word_drop_share=0.0,
        be_batch_size=512,
        round_count=400,
        softmax_round_count=400,
        dev_every_round_count=400,
        learning_rate=2e-4,
        matcher_layer_count=3,
        matcher_step_count=200,
        held_out_family_count=0,
        held_out_picture_count=300,
        dev_family_count=50,
    )


def zoo(seed: int = 1) -> ZooRecipe:
    """Trains a network without pretraining, of Rao et al. 2022, over a frozen image backbone.

    Margin, clip and hinges are those that its papers share; batch and width are for two cores.
    After a step decay the papers' rates end at a tenth; here they fall linearly.
    """
    return of_kind(
        ZooRecipe,
        compact(seed),
        name="zoo",
        zoo_model="vse_pp",
        embedding_width=256,
        pool_family_count=1_000,
        round_count=600,
        all_hinges_round_count=200,
        margin=0.2,
        gradient_clip_norm=2.0,
        learning_rate=1e-4,
        weight_decay=0.0,
        dev_score="mean_recall",
        dev_every_round_count=100,
        precision="fp32",
    )


def tiny(seed: int = 1) -> JointRecipe:
    """Trains a model that learns next to nothing within seconds, for tests of everything else.

    It uses fp32, because a CPU without bf16 emulates it and takes five times as long.
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


def finetune(corpus: str, round_count: int, seed: int = 1) -> JointRecipe:
    """Trains a checkpoint further on a corpus; the checkpoint sets the shape.

    It uses the in-batch softmax throughout. On emoji, which are far from scenes, the batch-hard
    triplet loss approached twice its margin within 20 rounds, where embeddings collapse into one
    point, while 45 rounds of softmax raised BE R@1 from 1.2 to 4.9 (82 dev texts, one seed, no
    tuning).
    """
    return replace(
        default(seed),
        name="finetune",
        corpus=corpus,
        begins_trained=True,
        backbone_step_count=0,
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


def _variant(name: str, base: JointRecipe) -> JointRecipe:
    named = name if base.name == "default" else f"{base.name}_{name}"
    return replace(base, name=named)


RECIPES: Mapping[str, NamedRecipe] = {
    recipe.__name__: recipe
    for recipe in (
        ance,
        ance_mismatches,
        ance_triplets,
        compact,
        cooperative,
        default,
        frozen_heads,
        bi_encoder,
        cross_encoder,
        cross_encoder_after_be,
        cls_pooling,
        half,
        minilm,
        half_minilm,
        joint_matcher,
        no_masked_words,
        pair_triplets,
        paper,
        photographs,
        photographs_joint,
        picture_dictionary,
        random_negatives,
        small,
        tiny,
        two_towers,
        zoo,
    )
}


def recipe_named(name: str, seed: int) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    return RECIPES[name](seed)
