"""Image files into pixels: core milliseconds, beside the same with the filter over every pixel.

    python benchmarks/bench_decode.py

Prints a table and one JSON line. Times are of the thread, so that a busy machine disturbs less.
"""

import io
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tandem.model_io.image import decode_image

IMAGE_SIZE = 112
SIZES = ((640, 480), (1920, 1080), (4000, 3000))
FORMATS = ("JPEG", "PNG", "WEBP")
RUN_COUNT = 9


def photo(width: int, height: int) -> Image.Image:
    """Returns a picture with soft shapes and some noise, as a camera would take it."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    soft = Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC)
    noise = rng.integers(-6, 7, (height, width, 3), dtype=np.int8)
    return Image.fromarray((np.asarray(soft) + noise).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, file_format: str) -> bytes:
    """Returns the picture as a file."""
    file = io.BytesIO()
    image.save(file, file_format, quality=85)
    return file.getvalue()


def decoded(file: bytes) -> Image.Image:
    """Returns the picture, no more than decoded."""
    image = Image.open(io.BytesIO(file))
    image.load()
    return image


def filtered_whole(file: bytes) -> NDArray[np.uint8]:
    """Returns the picture scaled by the filter alone, from every one of its pixels."""
    image = decoded(file)
    scale = IMAGE_SIZE / max(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC))


def milliseconds(work: Callable[[], object]) -> float:
    """Returns the median of the thread's own time."""
    seconds = []
    for _ in range(RUN_COUNT):
        start_time = time.thread_time()
        work()
        seconds.append(time.thread_time() - start_time)
    return statistics.median(seconds) * 1e3


def main() -> None:
    """Measures every size in every format."""
    rows = []
    print(f"{'picture':>12} {'format':>6} {'kB':>6} {'decoded':>8} {'whole':>8} {'ours':>8}  ms")
    for width, height in SIZES:
        image = photo(width, height)
        for file_format in FORMATS:
            file = encoded(image, file_format)
            if len(file) > 8 * 2**20:
                continue
            row = {
                "picture": f"{width}x{height}",
                "format": file_format,
                "kilobytes": len(file) // 1000,
                "decoded_milliseconds": milliseconds(lambda file=file: decoded(file)),
                "whole_milliseconds": milliseconds(lambda file=file: filtered_whole(file)),
                "ours_milliseconds": milliseconds(lambda file=file: decode_image(file, IMAGE_SIZE)),
            }
            rows.append(row)
            name, kind, size, *times = row.values()
            print(f"{name:>12} {kind:>6} {size:>6} " + " ".join(f"{each:8.1f}" for each in times))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
