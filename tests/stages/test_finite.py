"""tandem.stages.finite: NaN and infinity are found, whatever the values are kept as."""

import numpy as np
import pytest

from tandem.stages.finite import are_finite

EVERY_FLOAT16 = np.arange(2**16, dtype=np.uint16).view(np.float16)


def test_every_float16_there_is() -> None:
    """Each of the 65,536, alone, as NumPy says it; of both kinds there are some."""
    expected = np.isfinite(EVERY_FLOAT16)

    found = [are_finite(value) for value in EVERY_FLOAT16.reshape(-1, 1)]

    assert found == expected.tolist()
    assert expected.sum() == 2**16 - 2 * 2**10


@pytest.mark.parametrize(
    ("dtype", "bad"), [(np.float16, np.nan), (np.float32, np.inf), (np.float64, -np.inf)]
)
def test_one_among_many_is_found(dtype: type, bad: float) -> None:
    """In an array of any layout, which may not be written to."""
    values = np.random.default_rng(0).standard_normal((7, 49, 192)).astype(dtype)  # type: ignore[var-annotated]
    spoilt = values.copy()
    spoilt[3, 20, 100] = bad
    for each in (values, spoilt):
        each.setflags(write=False)

    assert are_finite(values)
    assert are_finite(values.transpose(2, 0, 1))
    assert not are_finite(spoilt)
    assert not are_finite(spoilt.transpose(2, 0, 1))
    assert not are_finite(spoilt[::3, ::4, ::5])


def test_of_nothing_all_is_finite() -> None:
    """As NumPy has it."""
    assert are_finite(np.empty((0, 192), dtype=np.float16))
