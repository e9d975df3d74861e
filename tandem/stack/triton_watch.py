"""Restarts a local Triton that no longer answers."""

import asyncio
from typing import Self

from tandem.errors import DeadlineExceeded, ModelUnavailable, TandemError
from tandem.model_io.inference.canary import check_encoding
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_repository import our_manifest
from tandem.model_io.repository.model_version import serving
from tandem.stack.stack import LocalStack
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonUnavailable

FAILED_CANARY_COUNT = 3
# A busy machine can delay canaries and Triton's counters, and a restart would not help.
LATE_CANARY_COUNT = 10


class TritonWatch:
    """Checks a stack's Triton on each `look`. Use it in a with statement."""

    def __init__(self, stack: LocalStack, manifest: Manifest) -> None:
        self._stack = stack
        self._manifest = manifest
        self._failed_count = 0
        # One loop and one connection for all canaries.
        self._runner = asyncio.Runner()
        self._model: ServedModel | None = None
        self._client: TritonClient | None = None

    def look(self) -> str | None:
        """Runs a canary; after three failures in a row, restarts Triton and returns why.

        Raises TritonUnavailable if it does not restart, or would load another model than the
        services know, and ValueError if the repository has no model any more.
        """
        error = self._runner.run(self._failure())
        self._failed_count = self._failed_count + 1 if error else 0
        limit = LATE_CANARY_COUNT if isinstance(error, DeadlineExceeded) else FAILED_CANARY_COUNT
        if error is None or self._failed_count < limit:
            return None
        self._failed_count = 0
        self._check_same_model()
        self._stack.stop_triton()
        self._stack.start_triton()
        return error.message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()

    def _check_same_model(self) -> None:
        repository = self._stack.model_repository
        held, known = our_manifest(repository).fingerprint, self._manifest.fingerprint
        if held != known:
            raise TritonUnavailable(
                f"Triton no longer answers, and is not restarted: {repository} holds model "
                f"{held[:12]} by now, whose answers the services would take for those of "
                f"{known[:12]}; start Tandem again with the model that it should serve"
            )

    async def _failure(self) -> TandemError | None:
        if self._stack.has_triton_lost_process():
            # Canaries may never reach it, because other inferences keep it busy, each for a second.
            return ModelUnavailable(model="of Triton", why="one of its processes has ended")
        if self._model is None:
            self._client = TritonClient(f"127.0.0.1:{self._stack.ports.triton}")
            self._model = ServedModel(self._client, self._manifest)
        try:
            await check_encoding(self._model.at(serving(self._stack.model_repository).version))
        except TandemError as error:
            return error
        return None
