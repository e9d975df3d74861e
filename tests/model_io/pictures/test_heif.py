"""HEIC and AVIF: off by default, and read in a process that can be lost."""

import os
import signal
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tandem.errors import ImageTooLarge, ImageUnreadable, TandemError
from tandem.local.reranking.remote.pictures import data_uri
from tandem.model_io.pictures import heif_reader as heif_reader_module
from tandem.model_io.pictures.heif_file import check_heif_size, heif_kind
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import decode_image, heif_reader
from tandem.model_io.pictures.image_rules import Fit, ImageRules
from tests.support.pictures.heic_files import claiming_heif, heic, heic_grid
from tests.support.pictures.pictures import BLUE, RED, encoded, halves, plain, png_chunk

RULES = ImageRules(size=112)
ORIENTATION_TAG = 0x112
KINDS = ["HEIC", "AVIF"]


@pytest.fixture(scope="module")
def reader() -> HeifReader:
    pytest.importorskip("pillow_heif")
    return heif_reader()


def picture(kind: str, *, is_turned: bool = False) -> bytes:
    if kind == "HEIC":
        return heic(is_turned=is_turned)
    exif = Image.Exif()
    if is_turned:
        exif[ORIENTATION_TAG] = 6
    return encoded(halves(), "AVIF", exif=exif, quality=90)


def is_near(pixels: np.ndarray, x: int, y: int, colour: tuple[int, ...]) -> bool:
    return bool(np.abs(pixels[y, x].astype(int) - colour).max() < 24)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_by_name_unless_it_is_enabled(kind: str) -> None:
    with pytest.raises(ImageUnreadable, match=f"it is {kind}, .*ENCODER_HEIF_ENABLED=true"):
        decode_image(picture(kind), RULES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_read_as_viewers_show_it(kind: str, reader: HeifReader) -> None:
    pixels = decode_image(picture(kind), RULES, reader)
    assert is_near(pixels, 20, 56, RED)
    assert is_near(pixels, 90, 56, BLUE)
    assert is_near(pixels, 56, 5, (255, 255, 255))

    turned = decode_image(picture(kind, is_turned=True), RULES, reader)
    assert is_near(turned, 56, 20, RED)
    assert is_near(turned, 56, 90, BLUE)


def test_a_remote_cross_encoder_gets_it_as_a_jpeg(reader: HeifReader) -> None:
    assert data_uri(picture("HEIC"), 64, reader).startswith("data:image/jpeg;base64,")


def test_exact_rules_and_transparency(reader: HeifReader) -> None:
    clear = encoded(plain((255, 0, 0, 0), (64, 64), "RGBA"), "AVIF")

    exact = ImageRules(size=32, fit=Fit.SQUASH, is_exact=True)
    assert decode_image(clear, exact, reader).min() == 255
    assert decode_image(picture("HEIC"), exact, reader).shape == (32, 32, 3)


def test_a_picture_of_tiles_is_read_whole(reader: HeifReader) -> None:
    """As phones write it: here twice two tiles, each red on its left and blue on its right."""
    squash = ImageRules(size=128, fit=Fit.SQUASH)

    pixels = decode_image(heic_grid(2, 2, (128, 128)), squash, reader)

    for top in (20, 84):
        for left in (15, 79):
            assert is_near(pixels, left, top, RED)
            assert is_near(pixels, left + 34, top, BLUE)
    # The last tiles may reach over the edge.
    cut = decode_image(heic_grid(2, 2, (96, 128)), ImageRules(size=96, fit=Fit.SQUASH), reader)
    assert is_near(cut, 79, 20, RED)


@pytest.mark.parametrize(
    "file",
    [
        heic_grid(2, 2, (128, 128), said_size=(0, 0)),
        heic_grid(2, 2, (1_000, 1_000)),
        heic_grid(40, 40, (2_560, 2_560)),
    ],
    ids=["a header without pixels", "too few tiles", "a thousand tiles too many"],
)
def test_impossible_tiles_are_unreadable(file: bytes, reader: HeifReader) -> None:
    with pytest.raises(ImageUnreadable):
        decode_image(file, RULES, reader)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_by_its_header(
    kind: str, reader: HeifReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heif_reader_module, "python_command", pytest.fail)
    bomb = claiming_heif(picture(kind), 20_000, 20_000)

    with pytest.raises(
        ImageTooLarge, match="400,000,000 pixels of HEIC or AVIF, the limit is 50,000,000"
    ):
        decode_image(bomb, RULES, reader)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_cut_short_is_unreadable(kind: str, reader: HeifReader) -> None:
    file = picture(kind)

    for part in (0.05, 0.95):
        with pytest.raises(ImageUnreadable):
            decode_image(file[: int(len(file) * part)], RULES, reader)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_or_refused_by_name(kind: str, reader: HeifReader) -> None:
    chance = np.random.default_rng(7)
    for _ in range(6):
        file = bytearray(picture(kind))
        for _ in range(4):
            file[chance.integers(16, len(file))] = int(chance.integers(256))
        try:
            decode_image(bytes(file), RULES, reader)
        except (ImageUnreadable, ImageTooLarge):
            continue


def test_a_decoder_that_is_killed_or_crashes_refuses_the_picture(
    reader: HeifReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = {}
    for sent in (signal.SIGXCPU, signal.SIGSEGV):
        program = f"import os; os.kill(os.getpid(), {int(sent)})"
        monkeypatch.setattr(
            heif_reader_module,
            "python_command",
            lambda _, program=program: ["/usr/bin/env", "python3", "-c", program],
        )
        with pytest.raises(TandemError) as caught:
            decode_image(picture("HEIC"), RULES, reader)
        outcomes[sent] = caught.value

    assert "seconds of decoding" in outcomes[signal.SIGXCPU].message
    assert "the HEIC decoder ended with status -11" in outcomes[signal.SIGSEGV].message


@pytest.mark.parametrize("kind", KINDS)
def test_a_false_header_does_not_bypass_the_limits(kind: str, reader: HeifReader) -> None:
    for width, height in ((10, 10), (3_000, 10)):
        lying = claiming_heif(picture(kind), width, height)
        try:
            read = reader.read(lying, kind)
        except (ImageUnreadable, ImageTooLarge):
            continue
        assert read.size in ((width, height), (60, 40))


TIGHT_PROGRAM = """
import sys
from tandem.model_io.pictures import heif_process
heif_process._MAX_ADDRESS_BYTES = int(sys.argv[1])
sys.exit(heif_process.main(sys.argv[2], *map(int, sys.argv[3:])))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("limit_mib", "is_read"), [(1_024, True), (100, False)])
def test_a_bitstream_gets_no_more_memory_than_its_process_may_have(
    limit_mib: int, is_read: bool, reader: HeifReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 megapixels behind a header of 100: with less than they need it is refused, by name."""
    file = claiming_heif(encoded(plain(size=(8_000, 8_000)), "AVIF", speed=10), 10, 10)
    command = [sys.executable, "-c", TIGHT_PROGRAM, str(limit_mib << 20)]
    monkeypatch.setattr(
        heif_reader_module, "python_command", lambda arguments: [*command, *arguments[2:]]
    )

    if is_read:
        assert reader.read(file, "AVIF").size == (10, 10)
    else:
        with pytest.raises(ImageUnreadable):
            reader.read(file, "AVIF")


def test_the_process_gets_none_of_the_services_variables(
    reader: HeifReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A decoder that was taken over finds no token in its environment."""
    seen = tmp_path / "seen"
    monkeypatch.setenv("ACCESS_TOKEN_FILE", "/run/secrets/token")
    monkeypatch.setattr(
        heif_reader_module, "python_command", lambda _: ["/bin/sh", "-c", f"env > {seen}; exit 3"]
    )
    with pytest.raises(ImageUnreadable):
        decode_image(picture("HEIC"), RULES, reader)

    assert "PATH=" in seen.read_text()
    assert "ACCESS" not in seen.read_text()
    assert "ACCESS_TOKEN_FILE" in os.environ


def test_formats_are_recognised_by_their_brands() -> None:
    def brands(major: bytes, *compatible: bytes) -> bytes:
        data = major + bytes(4) + b"".join(compatible)
        return struct.pack(">I4s", 8 + len(data), b"ftyp") + data

    assert heif_kind(brands(b"heic", b"mif1")) == "HEIC"
    assert heif_kind(brands(b"mif1", b"miaf", b"heic")) == "HEIC"
    assert heif_kind(brands(b"mif1", b"avif", b"miaf")) == "AVIF"
    assert heif_kind(brands(b"avif", b"mif1")) == "AVIF"
    assert heif_kind(brands(b"mp42", b"isom")) is None
    assert heif_kind(encoded(halves(), "PNG")) is None
    assert heif_kind(b"") is None


def box(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(data), kind) + data


@pytest.mark.parametrize(
    ("boxes", "error"),
    [
        (box(b"meta", b"\0\0\0\0" + box(b"iprp", box(b"ipco", b""))), ImageUnreadable),
        (box(b"free", b"") * 20_000, ImageTooLarge),
        (struct.pack(">I4s", 0xFFFFFFFF, b"meta"), ImageUnreadable),
        (struct.pack(">I4s", 4, b"meta"), ImageUnreadable),
        (png_chunk(b"ispe", bytes(4)), ImageUnreadable),
    ],
)
def test_malformed_headers_are_refused(boxes: bytes, error: type[TandemError]) -> None:
    with pytest.raises(error):
        check_heif_size(heic()[:28] + boxes, 25_000_000)


def test_a_size_may_be_anywhere_in_the_properties() -> None:
    sizes = [box(b"ispe", struct.pack(">III", 0, *size)) for size in ((512, 512), (4032, 3024))]
    header = box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", b"".join(sizes))))

    check_heif_size(header, 4032 * 3024)
    with pytest.raises(ImageTooLarge, match="12,192,768 pixels"):
        check_heif_size(header, 4032 * 3024 - 1)


def test_a_picture_over_the_usual_pixels_is_reduced_in_its_process() -> None:
    """By the fewest whole blocks, one picture at a time; over the larger limit it is refused."""
    reader = HeifReader(600, 5, 4_096)  # 60 x 40 pixels, in HEIC coded as 64 x 64

    for kind in KINDS:
        half = reader.read(picture(kind), kind)
        assert half.size == (30, 20)
        assert is_near(np.asarray(half), 5, 10, RED)
        assert is_near(np.asarray(half), 25, 10, BLUE)
    assert HeifReader(2_400, 5, 2_400).read(picture("AVIF"), "AVIF").size == (60, 40)
    with pytest.raises(ImageTooLarge, match=r"2,400 pixels .*limit is 2,399"):
        HeifReader(600, 5, 2_399).read(picture("AVIF"), "AVIF")
