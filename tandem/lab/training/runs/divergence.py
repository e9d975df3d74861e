"""Ends a run whose numbers became NaN or infinite, and says what it kept and what to try."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from tandem.lab.training.optimisation import NotFinite
from tandem.lab.training.runs.run_state import FILE_NAME
from tandem.modeling.checkpoint import WeightsNotFinite
from tandem.modeling.checkpoint_files import TRAINING, WEIGHTS
from tandem.modeling.stored_weights import not_finite


class TrainingDiverged(ValueError):
    """A loss, a gradient or a weight is NaN or infinite; no later step can repair it."""


@dataclass(frozen=True, slots=True)
class StepPlace:
    stage: str
    number: int
    count: int
    folder: Path
    precision: str

    @contextmanager
    def named(self) -> Iterator[None]:
        """Turns NotFinite and WeightsNotFinite raised within into TrainingDiverged at this step."""
        try:
            yield
        except (NotFinite, WeightsNotFinite) as error:
            finer = "--precision fp32, " if self.precision != "fp32" else ""
            raise TrainingDiverged(
                f"step {self.number:,} of {self.count:,} of stage {self.stage}: {error}. "
                f"{self._kept()} To try: {finer}another --seed, another start (--init, --from), or "
                "a recipe with a lower learning_rate; also check the corpus' pictures and regions"
            ) from error

    def check_weights(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            if names := not_finite(module.state_dict()):
                raise NotFinite(f"weights are NaN or infinite: {names}")

    def _kept(self) -> str:
        has_checkpoint = (self.folder / WEIGHTS).is_file() and (self.folder / TRAINING).is_file()
        kept = f"{self.folder} {'keeps its earlier' if has_checkpoint else 'has no'} checkpoint."
        if (self.folder / FILE_NAME).is_file():
            kept += " --resume continues from the last state before it."
        return kept
