"""Keeps the texts of one modality in memory, and ranks them by BM25 (tantivy).

Only this module imports tantivy, and only a shard that searches by words imports this module.
"""

import re
import unicodedata
from collections.abc import Sequence

import tantivy

from tandem.stages.shard_answer import WordHit

# Longer ones are not words: digests, base64.
_MAX_WORD_BYTES = 64
_WRITER_BYTES = 15_000_000
# Not the marks that stand for letters: vowels of Thai, and Greek's iota subscript (0345).
_ACCENTS = re.compile("[\u0300-\u0344\u0346-\u036f]+")


class WordIndex:
    """Searches texts by their words. Not safe to change from several threads at once."""

    def __init__(self) -> None:
        """Starts the threads of an empty index: one that writes, and those that merge."""
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("item_id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("text", tokenizer_name="words", index_option="freq")
        self._schema = builder.build()
        self._analyzer = _analyzer()
        self._index = tantivy.Index(self._schema)
        self._index.register_tokenizer("words", self._analyzer)
        self._index.config_reader("manual", 1)
        self._writer = self._index.writer(_WRITER_BYTES, 1)

    def put(self, item_id: str, text: str) -> None:
        """Adds an item or replaces its text, from the next commit() on."""
        self.delete(item_id)
        self._writer.add_document(tantivy.Document(item_id=item_id, text=_folded(text)))

    def delete(self, item_id: str) -> None:
        """Removes an item, if it is there, from the next commit() on."""
        self._writer.delete_documents_by_term("item_id", item_id)

    def commit(self) -> None:
        """Makes earlier changes visible to searches, which takes milliseconds."""
        self._writer.commit()
        self._index.reload()

    def item_count(self) -> int:
        """Returns the number of items that are visible."""
        return int(self._index.searcher().num_docs)

    def words_of(self, text: str) -> list[str]:
        """Returns the different words of a text: letters and digits, lower case, no accents."""
        return list(dict.fromkeys(self._analyzer.analyze(_folded(text))))

    def search(
        self, words: Sequence[str], count: int, among: Sequence[str] | None = None
    ) -> list[WordHit]:
        """Returns the items with at least one of the words, best first; at most `count`.

        `among`: ids that are searched alone; scores are the same.
        """
        # From terms, never from query syntax: no text can ask for more than its words.
        query = tantivy.Query.boolean_query(
            [
                (
                    tantivy.Occur.Should,
                    tantivy.Query.term_query(self._schema, "text", word, index_option="freq"),
                )
                for word in words
            ]
        )
        if among is not None:
            ids = tantivy.Query.term_set_query(self._schema, "item_id", list(among))
            both = (query, tantivy.Query.const_score_query(ids, 0.0))
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, each) for each in both])
        searcher = self._index.searcher()
        return [
            WordHit(str(searcher.doc(address)["item_id"][0]), float(score))
            for score, address in searcher.search(query, count, count=False).hits
        ]


def _folded(text: str) -> str:
    """Returns a text without case and accents, as Unicode folds it.

    tantivy's filters see one composed letter at a time: they would keep the dot of a lower-cased
    İ, split a word at an accent of its own, and tell ς from σ.
    """
    if text.isascii():
        return text
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", text)).casefold()
    return unicodedata.normalize("NFC", bare)


def _analyzer() -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for each in (
        tantivy.Filter.remove_long(_MAX_WORD_BYTES),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
    ):
        builder = builder.filter(each)
    return builder.build()
