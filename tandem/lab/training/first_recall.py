"""Measures a model on a sample of the dev texts before it is trained."""

from dataclasses import dataclass

from tandem.lab.training.data.batches import ImageTextBatch
from tandem.lab.training.dev_recall import DevRecall, Trained, dev_recall
from tandem.lab.training.runs.run import Run

_QUERY_COUNT = 100
_PAIR_COUNT = 2_000


@dataclass(frozen=True, slots=True)
class FirstRecall:
    """Recalls of the first `asked_count` of the dev texts, searched among all dev pictures."""

    recall: DevRecall
    asked_count: int
    text_count: int

    def __str__(self) -> str:
        if self.asked_count == self.text_count:
            return str(self.recall)
        return f"{self.recall} (of the first {self.asked_count:,} of {self.text_count:,} texts)"


def first_recall(
    model: Trained, dev: ImageTextBatch, cls_id: int, run: Run, stage: str
) -> FirstRecall:
    """Returns the recalls of as many texts as can be read in a short time.

    A model of six layers reads some hundred pairs a second on two cores.
    """
    text_count = len(dev.tokens)
    asked_count = min(text_count, _QUERY_COUNT)
    if not run.recipe.trains_be:  # nothing retrieves, so every text is read with every picture
        asked_count = min(asked_count, max(10, _PAIR_COUNT // text_count))
    measured = f"measure on {stage}, {asked_count:,} of {text_count:,} texts"
    run.progress(measured, 0, asked_count, "")
    model.eval()
    with run.compute.autocast():
        recall = dev_recall(
            model,
            run.compute.put(dev),
            cls_id,
            run.recipe,
            asked_count,
            lambda done: run.progress(measured, done, asked_count, ""),
        )
    run.progress(measured, asked_count, asked_count, "")
    return FirstRecall(recall, asked_count, text_count)
