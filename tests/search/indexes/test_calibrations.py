"""What searches know of an index's scores while shard 0 is away."""

from dataclasses import replace

import pytest

from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.modality import Modality
from tandem.contract.search.query import Depth, RankingRule, SearchQuery, WeightedPart
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.errors import ServiceUnavailable
from tandem.search.indexes import calibrations
from tandem.search.indexes.calibrations import Calibrations
from tests.support.orchestrator_svc.downstream import stack

MEASURED = ScoreCalibration(
    model_fingerprint="model-a",
    query_modality=Modality.TEXT,
    target_modality=Modality.IMAGE,
    null_scores=(0.25, 0.5),
)
PLAIN = SearchQuery(
    parts=(WeightedPart(TextContent("1")),),
    index_id="scenes@2",
    target_modality=Modality.IMAGE,
    depth=Depth.of(None, None, None),
)
PROMISED = replace(PLAIN, ranking=RankingRule(max_false_answer_rate=0.05))


async def test_the_last_known_serve_while_shard_0_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is known, only a search that cannot do without fails, and by that name."""
    monkeypatch.setattr(calibrations, "_FOLLOW_SECONDS", 0.0)
    async with stack() as behind:
        shard = behind.stages.shards[0]
        known, late = Calibrations(shard), Calibrations(shard)
        assert await known.put("scenes", [MEASURED], Deadline.after(5)) == 1
        assert await known.of(PROMISED, Deadline.after(5)) == (MEASURED,)
        await behind.stop_shard(0)

        assert await known.of(PROMISED, Deadline.after(5)) == (MEASURED,)
        assert await late.of(PLAIN, Deadline.after(5)) == ()
        with pytest.raises(ServiceUnavailable):
            await late.of(PROMISED, Deadline.after(5))
