"""Ingests a corpus into what `tandem up` serves."""

import shlex
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from tandem.cli.corpora.corpora import open_corpus
from tandem.cli.ingest.source_job import DEFAULT_SEED, DEFAULT_SPLIT
from tandem.cli.options import DEFAULT_ADDRESS
from tandem.cli.terminal.console import one_line, out
from tandem.contract.identifiers import check_index_id
from tandem.corpus.errors import SplitUnknown
from tandem.platform.child_processes.child_environment import python_command, python_environment

_STOP_SECONDS = 10.0


class CorpusIngest:
    """`tandem ingest` as a child process, which prints its own lines; its end ends nothing else.

    Use it in a with statement.
    """

    def __init__(self, corpus: str, index_id: str) -> None:
        """Starts nothing yet.

        Raises IndexIdInvalid, and as open_corpus does for a corpus that is missing or has no
        picture.
        """
        check_index_id(index_id)
        try:
            open_corpus(corpus, DEFAULT_SPLIT, DEFAULT_SEED, None)
        except SplitUnknown as error:
            error.args = (f"{error}; tandem ingest --split takes another, once this serves",)
            raise
        self._corpus = corpus
        self._index_id = index_id
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: threading.Thread | None = None
        self._is_stopped = False

    def start(self, address: str, variables: Mapping[str, str] | None = None) -> None:
        """Starts to ingest into the server at `address`; records that it cannot take are skipped.

        `variables` are added to the child's environment.
        """
        process = subprocess.Popen(
            python_command(
                [
                    *("-m", "tandem.cli", "ingest", "--index", self._index_id),
                    *("--on-error", "skip", "--address", address),
                    *("--", self._corpus),
                ]
            ),
            env=python_environment() | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            # Ctrl-C reaches this process alone, which stops the child before it stops the server.
            start_new_session=True,
        )
        self._process = process
        self._watch = threading.Thread(
            target=self._say_its_end, args=(process, address), name="corpus-ingest", daemon=True
        )
        self._watch.start()

    def stop(self) -> None:
        """Ends the ingest if it still runs, and returns when its process is gone."""
        if self._process is None or self._watch is None:
            return
        self._is_stopped = True
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watch.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _say_its_end(self, process: subprocess.Popen[bytes], address: str) -> None:
        status = process.wait()
        if self._is_stopped:
            return
        place = f"--index {self._index_id}"
        if address != DEFAULT_ADDRESS:
            # Lines with 127.0.0.1 are processes: scripts read the ids at their ends.
            place += f" --address localhost:{address.rpartition(':')[2]}"
        line = f'search it by: tandem search "WORDS" {place}'
        if status:
            line = (
                "not everything was ingested, as said above, and the server continues; try again "
                f"by: tandem ingest {one_line(shlex.quote(self._corpus))} {place}"
            )
        with suppress(OSError):  # The terminal may be closed since, and searches continue.
            out.print(line)
