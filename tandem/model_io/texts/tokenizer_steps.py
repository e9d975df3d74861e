"""Checks what a tokenizer does to a text, which is data of a checkpoint and could be a program.

Each step must take time in proportion to the text and cannot make it much longer. Published
tokenizers of the families have only such steps; several rules "w -> ww" would fill the memory.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tokenizers import Tokenizer

# Neither longer texts nor regular expressions come from these.
_PLAIN: Final = frozenset(
    {
        *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip"),
        *("StripAccents", "BertPreTokenizer", "Digits", "Metaspace", "Punctuation"),
        *("Whitespace", "WhitespaceSplit"),
    }
)
# Twice, each could multiply what the other made longer.
_ONCE: Final = frozenset({"ByteLevel", "Precompiled"})
_MAX_STEP_COUNT: Final = 16
# SentencePiece's own map makes up to 18 letters of one.
_MAX_MAPPED_BYTES: Final = 64
_MAX_PATTERN_LENGTH: Final = 2_000
_MAX_WORD_LENGTH: Final = 200
"""WordPiece takes time by its square; all published ones have 100."""
_MAX_ADDED_COUNT: Final = 16
# Alternatives that end in their only repetition, without groups: no backtracking, no empty match.
_CLASS: Final = r"\\[pP]\{\^?\w+\}|\\[sSdDwWnrt]|\\[^\w]|\[(?:\\.|[^\\\]])+\]"
_ONE: Final = rf"(?:{_CLASS}|[^\\\[\](){{}}|*+?.^$])"
_ALTERNATIVE: Final = rf"{_ONE}+(?:\+|\{{[1-9]\d?(?:,\d{{0,2}})?\}})?"
_SIMPLE: Final = re.compile(rf"{_ALTERNATIVE}(?:\|{_ALTERNATIVE})*", re.DOTALL)
# Of converted SentencePiece models; texts have no two spaces in a row here.
_KNOWN: Final = frozenset({(r"\A +| +\z", ""), (r"\A▁", "▁▁")})


def check_steps(tokenizer: Tokenizer) -> None:
    """Raises ValueError, which names the step, for one that published tokenizers do not have."""
    steps = [*_steps(tokenizer.normalizer), *_steps(tokenizer.pre_tokenizer)]
    kinds = [step["type"] for step in steps]
    if len(kinds) > _MAX_STEP_COUNT or any(kinds.count(kind) > 1 for kind in _ONCE):
        raise ValueError(f"the tokenizer changes a text too often, by {', '.join(kinds)[:200]}")
    for step in steps:
        if not _is_bounded(step):
            raise ValueError(
                f"the tokenizer's step {json.dumps(step, ensure_ascii=False)[:200]} is none that "
                "published tokenizers have: it could take any time or memory; take the "
                "tokenizer.json of the checkpoint's publisher"
            )
    if getattr(tokenizer.model, "max_input_chars_per_word", 0) > _MAX_WORD_LENGTH:
        raise ValueError(f"the tokenizer's words have over {_MAX_WORD_LENGTH} letters")
    if (count := tokenizer.num_special_tokens_to_add(False)) > _MAX_ADDED_COUNT:
        raise ValueError(f"the tokenizer adds {count:,} tokens to each text")


def _steps(component: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 (one of two kinds)
    """Yields the steps within sequences of a normaliser or pre-tokenizer."""
    waiting = [] if component is None else [json.loads(component.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        inner = step.get("normalizers", step.get("pretokenizers"))
        if inner is None:
            yield step
        else:
            waiting[:0] = inner


def _is_bounded(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "Replace" | "Split", "pattern": {"String": str(text)}}:
            return bool(text) and len(step.get("content", "")) <= len(text)
        case {"type": "Replace" | "Split", "pattern": {"Regex": str(pattern)}}:
            content = step.get("content", "")
            is_simple = len(pattern) <= _MAX_PATTERN_LENGTH and _SIMPLE.fullmatch(pattern)
            return (pattern, content) in _KNOWN or bool(is_simple and len(content) <= 1)
        case {"type": "Precompiled", "precompiled_charsmap": str(text)}:
            charsmap = base64.b64decode(text)
            mapped = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
            return max(map(len, mapped.split(b"\0"))) <= _MAX_MAPPED_BYTES
        case {"type": "Prepend", "prepend": str(text)}:
            return len(text) <= 1
        case _:
            return step["type"] in _PLAIN | _ONCE
