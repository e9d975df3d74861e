"""Learns a WordPiece vocabulary from a corpus' captions."""

from collections.abc import Iterable, Sequence

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tandem.model_io.texts.visible_text import visible_text

PAD, UNKNOWN, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_SPECIAL = [PAD, UNKNOWN, CLS, SEP]


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Returns a lower-casing WordPiece tokenizer that adds [CLS] and [SEP].

    Accents stay, because they distinguish Czech and French words. The same texts give the same
    vocabulary. Only visible characters are learned, as only they are read later (visible_text.py).
    """
    texts = list(map(visible_text, texts))
    learner = _tokenizer(models.WordPiece(unk_token=UNKNOWN))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        # The trainer would number the letters inside words in the order of its hash table, which
        # changes in each run, and break ties between merges by these numbers.
        special_tokens=[*_SPECIAL, *_inner_letters(learner, texts)],
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    # A new tokenizer, because the learner takes those letters for special tokens and would match
    # "##a" literally.
    tokenizer = _tokenizer(models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN))
    tokenizer.add_special_tokens(_SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        special_tokens=[(token, tokenizer.get_vocab()[token]) for token in (CLS, SEP)],
    )
    return tokenizer


def _tokenizer(model: models.WordPiece) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _inner_letters(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Returns "##" and each letter that stands in a word after its first, in code point order."""
    words = {
        word
        for text in texts
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(
            tokenizer.normalizer.normalize_str(text)
        )
    }
    return [f"##{letter}" for letter in sorted({letter for word in words for letter in word[1:]})]
