"""Decodes HEIC and AVIF files, each in a process of limited memory and time."""

import importlib.util
import math
import signal
import subprocess
import threading
from typing import Final

from PIL import Image, features

from tandem.errors import ImageTooLarge, ImageUnreadable
from tandem.model_io.pictures.heif_file import check_heif_size
from tandem.model_io.pictures.heif_process import HEADER, LARGE_STATUS, REFUSED_STATUS
from tandem.platform.child_processes.child_environment import python_command, python_environment
from tandem.platform.child_processes.module_process import MODULE_PATH

_MODULE: Final = "tandem.model_io.pictures.heif_process"
# A process may wait for a core, so it has more time than it may compute.
_WAIT_FACTOR: Final = 6
_START_SECONDS: Final = 2
_MAX_WHY_LENGTH: Final = 200
_PASSED_ON: Final = (MODULE_PATH, "PATH", "LD_LIBRARY_PATH")


class HeifReader:
    """Reads HEIC and AVIF pictures, with the decoders that the extra `heif` installs."""

    def __init__(self, max_pixel_count: int, max_seconds: int, max_large_pixel_count: int) -> None:
        """Reads pictures of `max_pixel_count`, and larger ones one at a time, reduced to it.

        Seconds are of one core. Raises ValueError if a decoder is not installed.
        """
        self._max_pixel_count = max_pixel_count
        self._max_large_pixel_count = max_large_pixel_count
        self._max_seconds = max_seconds
        self._large = threading.Lock()
        if importlib.util.find_spec("pillow_heif") is None or not features.check("avif"):
            raise ValueError(
                "HEIC and AVIF need decoders that are not installed; "
                "pip install 'tandem-search[heif]'"
            )

    def read(self, file: bytes, kind: str) -> Image.Image:
        """Returns the primary picture, upright, RGB or RGBA, of at most the usual pixels.

        Raises ImageTooLarge by the header alone, for a bitstream that is larger than its header
        says, and over the seconds; ImageUnreadable for what cannot be decoded.
        """
        pixel_count = check_heif_size(file, self._max_large_pixel_count)
        if pixel_count <= self._max_pixel_count:
            return self._decoded(file, kind, self._max_pixel_count)
        # A decoder holds the whole picture, so several large ones at once would double the memory.
        with self._large:
            return self._decoded(file, kind, self._max_large_pixel_count)

    def _decoded(self, file: bytes, kind: str, max_pixel_count: int) -> Image.Image:
        seconds = self._max_seconds + _START_SECONDS
        limits = (max_pixel_count, seconds, self._max_pixel_count)
        arguments = [kind, *map(str, limits)]
        try:
            done = subprocess.run(
                python_command(["-m", _MODULE, *arguments]),
                input=file,
                capture_output=True,
                check=False,
                env=_environment(),
                timeout=seconds * _WAIT_FACTOR,
            )
        except subprocess.TimeoutExpired:
            raise self._too_slow() from None
        self._check_status(done, kind, max_pixel_count)
        mode, width, height = HEADER.unpack_from(done.stdout)
        pixels = memoryview(done.stdout)[HEADER.size :]
        return Image.frombytes(mode.decode().strip(), (width, height), pixels)

    def _check_status(
        self, done: subprocess.CompletedProcess[bytes], kind: str, max_pixel_count: int
    ) -> None:
        if done.returncode == 0:
            return
        message = done.stderr.decode(errors="replace").strip()
        if done.returncode == LARGE_STATUS:
            raise ImageTooLarge(got=int(message), limit=max_pixel_count, unit="pixels")
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise self._too_slow()
        if done.returncode == REFUSED_STATUS:
            raise ImageUnreadable(why=message[:_MAX_WHY_LENGTH])
        raise ImageUnreadable(why=f"the {kind} decoder ended with status {done.returncode}")

    def _too_slow(self) -> ImageTooLarge:
        seconds = self._max_seconds
        return ImageTooLarge(got=math.ceil(seconds) + 1, limit=seconds, unit="seconds of decoding")


def _environment() -> dict[str, str]:
    """Returns what a Python needs to start, and nothing that a decoder could give away."""
    environment = python_environment()
    return {name: environment[name] for name in _PASSED_ON if name in environment}
