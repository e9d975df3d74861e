"""Knows what the scores of each index mean: nothing, until it was measured."""

from collections.abc import Sequence

from tandem.contract.deadline import Deadline
from tandem.contract.search.query import SearchQuery
from tandem.contract.search.score_calibration import ScoreCalibration


class Calibrations:
    """Gives the calibrations of an index."""

    async def of(self, query: SearchQuery, deadline: Deadline) -> Sequence[ScoreCalibration]:
        """Returns those of the query's index."""
        return ()
