"""What every test stands on."""

from __future__ import annotations

from hypothesis import settings

# Times on a shared machine say nothing about the code, so no example has a deadline of its own.
settings.register_profile("tandem", deadline=None, derandomize=True)
settings.load_profile("tandem")

pytest_plugins = ["tests.model_io.tiny_triton"]
