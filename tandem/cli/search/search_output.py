"""Prints answers as tables or as one JSON object, and saves files."""

from collections.abc import Sequence
from typing import Any

from tandem.cli.ingest.demo_note import say_if_demo
from tandem.cli.refusals import print_error
from tandem.cli.search.found_files import FoundFiles
from tandem.cli.search.search_table import print_result, warnings
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import REGION_BYTES, json_text, plain
from tandem.client import SearchResult
from tandem.errors import TandemError


class SearchOutput:
    """Receives answers in the order of their queries."""

    def __init__(
        self,
        index_id: str,
        *,
        as_json: bool,
        attributes_shown: bool,
        paths_shown: bool,
        files: FoundFiles | None,
    ) -> None:
        self._index_id = index_id
        self._as_json = as_json
        self._attributes_shown = attributes_shown
        self._paths_shown = paths_shown
        self._files = files
        self._answers: list[dict[str, Any]] = []
        self._fingerprint = ""

    def head(self, text: str) -> None:
        """Names the query whose answer follows."""
        if not self._as_json:
            out.rule(text)

    def show(
        self,
        result: SearchResult,
        query: str | None,
        *,
        heading: str = "",
        why_empty: Sequence[str] = (),
    ) -> None:
        """Receives an answer, with the reasons if it is empty."""
        self._fingerprint = result.model_fingerprint
        if self._files is not None:
            self._files.save(result.items)
        if self._as_json:
            self._tell_lacks(result, why_empty)
            answer = _result_json(result, self._files)
            self._answers.append({"query": query, **answer, "why_empty": list(why_empty)})
            return
        if heading:
            out.print(heading)
        self._print(result)
        for line in why_empty:
            out.print(f"nothing found: {line}")

    def show_page(self, result: SearchResult) -> None:
        """Receives the next page of the last answer."""
        if self._files is not None:
            self._files.save(result.items)
        if self._as_json:
            self._tell_lacks(result, ())
            last, page = self._answers[-1], _result_json(result, self._files)
            last["items"] += page["items"]
            last["next_cursor"] = page["next_cursor"]
        else:
            self._print(result)

    def show_refusal(self, error: TandemError, query: str | None) -> None:
        """Receives an error instead of an answer."""
        print_error(error)
        if self._as_json:
            told = {"reason": error.reason, "message": error.message, "metadata": error.metadata}
            self._answers.append({"query": query, "error": told})

    def say_more(self) -> None:
        """Reports that there are more pages."""
        if not self._as_json:
            out.print("there is more: --pages")

    def finish(self, *, is_batch: bool) -> bool:
        """Finishes the output; returns whether everything was saved."""
        say_if_demo(self._fingerprint, self._index_id)
        if self._as_json:
            whole: dict[str, Any] = {"index": self._index_id}
            if is_batch:
                whole |= {"answers": self._answers}
            elif self._answers:
                *earlier, last = self._answers
                whole |= last | ({"retrieved": earlier[0]} if earlier else {})
            out.file.write(json_text(whole) + "\n")
        if self._files is None:
            return True
        self._files.print_count()
        return not self._files.refused_count

    def _print(self, result: SearchResult) -> None:
        print_result(result, attributes_shown=self._attributes_shown, paths_shown=self._paths_shown)

    def _tell_lacks(self, result: SearchResult, why_empty: Sequence[str]) -> None:
        for warning in warnings(result):
            errors.print(f"warning: {warning}")
        for line in why_empty:
            errors.print(f"nothing found: {line}")


def _result_json(result: SearchResult, files: FoundFiles | None) -> dict[str, Any]:
    """Returns an answer with the SDK's names; a saved item has its path under "file".

    Bytes are base64, and left out for saved items. Numbers that are not finite are null.
    """
    answer: dict[str, Any] = plain(result)
    for item in answer["items"]:
        if files is not None and (path := files.paths.get(item["item_id"])) is not None:
            item["file"] = str(path)
            if item["content"] is not None:
                item["content"].pop("image_base64", None)
                for name in REGION_BYTES:
                    item["content"].get("regions", {}).pop(name, None)
    return answer
