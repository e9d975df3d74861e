"""Builds BERT's tokenizer from vocab.txt, the only tokenizer file of older checkpoints."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tandem.files.json_object import FileInvalid, check_file, read_object

VOCABULARY = "vocab.txt"
_CONFIG = "tokenizer_config.json"
_UNKNOWN, _CLS, _SEP = "[UNK]", "[CLS]", "[SEP]"
_SPECIAL = ("[PAD]", _UNKNOWN, _CLS, _SEP, "[MASK]")


def word_piece_tokenizer(folder: Path) -> Tokenizer:
    """Returns the tokenizer of a folder's vocab.txt, lower-casing unless its config disables it.

    Raises FileInvalid naming the file and what is wrong.
    """
    path = folder / VOCABULARY
    vocabulary = _vocabulary(path)
    if missing := [word for word in (_UNKNOWN, _CLS, _SEP) if word not in vocabulary]:
        raise FileInvalid(f"{path} lacks {', '.join(missing)}, so it is not a BERT vocabulary")
    config = folder / _CONFIG
    fields = read_object(config) if config.exists() else {}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=fields.get("tokenize_chinese_chars", True),
        strip_accents=fields.get("strip_accents"),
        lowercase=fields.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        (_SEP, vocabulary[_SEP]), (_CLS, vocabulary[_CLS])
    )
    tokenizer.add_special_tokens([word for word in _SPECIAL if word in vocabulary])
    return tokenizer


def _vocabulary(path: Path) -> dict[str, int]:
    """Returns the number of each line; lines end in LF, or all of them in CR LF.

    str.splitlines would also split at U+2028 and U+0085, which are tokens of multilingual
    vocabularies, and so shift the numbers of all tokens after them.
    """
    check_file(path)
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise FileInvalid(f"{path} is not UTF-8 at byte {error.start:,}") from error
    if all(line.endswith("\r") for line in lines[:-1]) and len(lines) > 1:
        lines = [line.removesuffix("\r") for line in lines]
    return {line: number for number, line in enumerate(lines)}
