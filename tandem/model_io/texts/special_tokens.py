"""Finds the ids of a tokenizer's special tokens, under any of their usual names."""

from dataclasses import dataclass

from tokenizers import Tokenizer

# Ours and BERT's, then RoBERTa's and XLM-R's.
_NAMES = (("[CLS]", "[SEP]", "[PAD]"), ("<s>", "</s>", "<pad>"))


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Holds the ids that start, end and pad every text."""

    cls_id: int
    sep_id: int
    pad_id: int


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Returns the ids; raises ValueError unless a text is placed between the two.

    >>> from tokenizers import Tokenizer, models, processors
    >>> words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    >>> tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    >>> tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    >>> special_tokens(tokenizer)
    SpecialTokens(cls_id=0, sep_id=2, pad_id=1)
    """
    for cls, sep, pad in _NAMES:
        cls_id, sep_id, pad_id = map(tokenizer.token_to_id, (cls, sep, pad))
        if cls_id is None or sep_id is None or pad_id is None:
            continue
        empty = tokenizer.encode("")
        around = [n for n, counts in zip(empty.ids, empty.attention_mask, strict=True) if counts]
        if around != [cls_id, sep_id]:
            raise ValueError(
                f"the tokenizer puts {around} around a text, not {[cls_id, sep_id]} ({cls}, {sep})"
            )
        return SpecialTokens(cls_id, sep_id, pad_id)
    known = " or ".join(", ".join(names) for names in _NAMES)
    raise ValueError(f"the tokenizer lacks special tokens; it needs {known}")
