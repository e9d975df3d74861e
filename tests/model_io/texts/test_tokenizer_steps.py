"""Tokenizers of checkpoints: steps of published ones are accepted, those without bounds are not."""

import re
import string
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import (
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.normalizers import Normalizer, Replace
from tokenizers.pre_tokenizers import PreTokenizer, Split

from tandem.contract.content import TruncationPolicy
from tandem.errors import ModelOutputInvalid
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.tokenizer_file import check_tokenizer, read_tokenizer_file
from tandem.model_io.texts.tokenizer_steps import check_steps
from tandem.platform.files.json_object import FileInvalid

VOCABULARY = {"[UNK]": 0, "a": 1, "w": 2}
CLIP_WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
SENTENCE_PIECE = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]


def charsmap(longest_bytes: int) -> bytes:
    """Returns a map of SentencePiece that maps no letter, with its longest text."""
    return (2_048).to_bytes(4, "little") + bytes(2_048) + b"a\0" + b"x" * longest_bytes + b"\0"


def tokenizer(
    normalizer: Normalizer | None = None, pre_tokenizer: PreTokenizer | None = None
) -> Tokenizer:
    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    if normalizer is not None:
        made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    return made


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (  # CLIP, open_clip; also with its special tokens, as transformers 5 writes it
            normalizers.Sequence(
                [normalizers.NFC(), Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
            ),
            pre_tokenizers.Sequence(
                [
                    Split(Regex(rf"<\|startoftext\|>|<\|endoftext\|>|{CLIP_WORDS}"), "removed"),
                    Split(Regex(CLIP_WORDS), "removed", invert=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            ),
        ),
        # BERT, DistilBERT, MiniLM, MPNet, BLIP, ViLT, and multilingual BERT
        (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()),
        # RoBERTa, BridgeTower
        (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
        # XLM-R, M3P, MetaCLIP 2, in older and newer files
        (normalizers.Precompiled(charsmap(33)), pre_tokenizers.Sequence(SENTENCE_PIECE)),
        (
            normalizers.Sequence(
                [normalizers.Precompiled(charsmap(33)), Replace(Regex(" {2,}"), " ")]
            ),
            pre_tokenizers.Metaspace(),
        ),
        # SentencePiece as transformers converts it
        (
            normalizers.Sequence(
                [
                    Replace(Regex(r"\A +| +\z"), ""),
                    Replace(Regex(" {2,}"), " "),
                    Replace(" ", "▁"),
                    Replace(Regex(r"\A▁"), "▁▁"),
                ]
            ),
            pre_tokenizers.Metaspace(split=False),
        ),
        # SigLIP, of which the escapes differ by the program that wrote the file
        *[
            (
                normalizers.Sequence(
                    [
                        normalizers.Lowercase(),
                        Replace(Regex(punctuation), ""),
                        Replace(Regex(r"\s+"), " "),
                        normalizers.Strip(),
                    ]
                ),
                pre_tokenizers.Metaspace(),
            )
            for punctuation in (
                f"[{re.escape(string.punctuation)}]",
                r"""[!"\#\$%\&'\(\)\*\+,\-\.:;=\?@\[\]\^_`\{\|\}\~]""",
            )
        ],
        # SigLIP 2, Gemma
        (
            normalizers.Sequence([normalizers.Lowercase(), Replace(" ", "▁")]),
            Split(" ", behavior="merged_with_previous"),
        ),
        # ALBERT, DeBERTa
        (
            normalizers.Sequence(
                [
                    Replace("``", '"'),
                    normalizers.NFKD(),
                    normalizers.StripAccents(),
                    Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
                ]
            ),
            pre_tokenizers.Sequence(
                [pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Metaspace()]
            ),
        ),
        # What `tandem train` writes
        (
            normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
            pre_tokenizers.BertPreTokenizer(),
        ),
    ],
)
def test_steps_of_published_tokenizers_are_accepted(
    normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None
) -> None:
    check_tokenizer(tokenizer(normalizer, pre_tokenizer), 10)


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "named"),
    [
        (normalizers.Sequence([Replace("w", "ww")] * 12), None, '"w"'),
        (Replace(Regex("w"), "ww"), None, '"ww"'),
        *[
            (Replace(Regex(pattern), ""), None, "Regex")
            for pattern in (
                *("(w|w)*$|(w+)+y", "a+a+b", r"\s+(?!\S)", r"(a)\1", "a*", "|a", "x" * 2_001),
            )
        ],
        (normalizers.Precompiled(charsmap(65)), None, "Precompiled"),
        (normalizers.Prepend("w" * 1_000), None, "Prepend"),
        (normalizers.Sequence([normalizers.NFC()] * 17), None, "too often"),
        (normalizers.ByteLevel(), pre_tokenizers.ByteLevel(), "too often"),
        (None, pre_tokenizers.FixedLength(0), "FixedLength"),
    ],
)
def test_a_step_that_could_take_any_time_or_memory_is_refused_by_name(
    normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None, named: str, tmp_path: Path
) -> None:
    """When a model is added, and when its file is read to be served; before any text is split."""
    hostile = tokenizer(normalizer, pre_tokenizer)
    hostile.save(str(tmp_path / "tokenizer.json"))
    start_time = time.process_time()

    with pytest.raises(ValueError, match=re.escape(named)):
        check_tokenizer(hostile, 10)
    with pytest.raises(FileInvalid, match=r"tokenizer\.json: the tokenizer"):
        read_tokenizer_file(tmp_path / "tokenizer.json")

    assert time.process_time() - start_time < 1


def test_words_that_take_time_by_their_square_are_refused() -> None:
    check_steps(Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]")))

    with pytest.raises(ValueError, match="200 letters"):
        check_steps(
            Tokenizer(
                models.WordPiece(VOCABULARY, unk_token="[UNK]", max_input_chars_per_word=10**9)
            )
        )


@pytest.mark.parametrize("template", ["$A " * 100, "[UNK] " * 17 + "$A"])
def test_more_tokens_than_a_text_can_have_are_refused(template: str) -> None:
    growing = tokenizer(pre_tokenizer=pre_tokenizers.Whitespace())
    growing.post_processor = processors.TemplateProcessing(
        single=template.strip(), special_tokens=[("[UNK]", 0)]
    )

    with pytest.raises(ValueError, match="tokens"):
        check_tokenizer(growing, 10)


def panicking() -> Tokenizer:
    return tokenizer(Replace(Regex("(w|w)*$|(w+)+y"), ""))


def growing() -> Tokenizer:
    made = tokenizer(pre_tokenizer=pre_tokenizers.Whitespace())
    made.post_processor = processors.TemplateProcessing(
        single=" ".join(["$A"] * 50), special_tokens=[]
    )
    return made


@pytest.mark.parametrize(
    ("make", "why"), [(panicking, "retry-limit"), (growing, "tokens of a text")]
)
def test_a_text_that_a_tokenizer_fails_at_gets_a_named_error(
    make: Callable[[], Tokenizer], why: str
) -> None:
    """The second line of defence: one text fails, also where the library panics."""
    texts = TextPreprocessor(make(), 512)
    long = "w" * 40 + "x " + "a " * 40

    for policy in TruncationPolicy:
        with pytest.raises(ModelOutputInvalid, match=why):
            texts.windows(long, policy)
