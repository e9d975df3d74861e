"""What is read of records on demand, as a batch."""

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.lab.training.data.pooled_images import ReadImages


def test_records_of_fewer_rows_are_padded_by_rows_that_do_not_count() -> None:
    records = list(scene_records("test", 1, 4))
    rows = {records[0].record_id: 3, records[2].record_id: 1}

    def content(record: Record) -> NDArray[np.float16]:
        return np.full((rows[record.record_id], 2), 7, np.float16)

    tokens, mask = ReadImages(content, records).of([2, 0])

    assert tokens.tolist() == [[[7, 7], [0, 0], [0, 0]], [[7, 7]] * 3]
    assert mask.tolist() == [[1, 0, 0], [1, 1, 1]]
