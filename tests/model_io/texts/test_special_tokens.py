"""Special tokens: found under either family's names, and only where texts really get them."""

import pytest
from tokenizers import Tokenizer, models, processors

from tandem.model_io.texts.special_tokens import SpecialTokens, special_tokens
from tests.support.modeling.published_folders import bert_tokenizer, xlm_r_tokenizer
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (tiny_tokenizer(), SpecialTokens(cls_id=2, sep_id=3, pad_id=0)),
        (bert_tokenizer(), SpecialTokens(cls_id=2, sep_id=3, pad_id=0)),
        (xlm_r_tokenizer(), SpecialTokens(cls_id=0, sep_id=2, pad_id=1)),
    ],
    ids=["ours", "bert", "xlm-r"],
)
def test_each_family_has_its_ids(tokenizer: Tokenizer, expected: SpecialTokens) -> None:
    """BERT's here pads every text to 40 tokens, which is not taken for what surrounds it."""
    assert special_tokens(tokenizer) == expected


def test_a_tokenizer_without_special_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lacks special tokens; it needs \[CLS\], \[SEP\], \[PA"):
        special_tokens(Tokenizer(models.WordLevel({"two": 0, "<pad>": 1}, unk_token="two")))


def test_a_tokenizer_that_adds_none_is_refused() -> None:
    tokenizer = bert_tokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[CLS]", 2), ("[SEP]", 3))

    with pytest.raises(ValueError, match=r"puts \[3, 2\] around a text, not \[2, 3\]"):
        special_tokens(tokenizer)
