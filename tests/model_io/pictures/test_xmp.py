"""Orientation out of XMP: followed where EXIF has none."""

import pytest
from PIL import Image

from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_file import image_file_parts
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.pictures.xmp import xmp_orientation
from tests.support.pictures.hostile_images import jpeg_segment
from tests.support.pictures.pictures import BLUE, RED, encoded, halves, png_chunk

ORIENTATION_TAG = 0x112
TIFF = 'xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'


def packet(orientation: int) -> bytes:
    """Returns a packet as programs write it."""
    return (
        '<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description rdf:about="" {TIFF} tiff:Make="x" tiff:Orientation="{orientation}"/>'
        '</rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
    ).encode()


def with_packet(file_format: str, xmp: bytes, exif_orientation: int | None = None) -> bytes:
    """Returns a picture, red on the left and blue on the right, with a packet."""
    options: dict[str, object] = {}
    if exif_orientation is not None:
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = exif_orientation
        options["exif"] = exif
    if file_format == "WEBP":
        return encoded(halves(), "WEBP", xmp=xmp, **options)
    file = encoded(halves(), file_format, **options)
    if file_format == "JPEG":
        segment = jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp)
        return file[:2] + segment + file[2:]
    text = b"XML:com.adobe.xmp\0\0\0en\0\xc3\xbc\0" + xmp
    return file[:33] + png_chunk(b"iTXt", text) + file[33:]


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
def test_a_picture_is_turned_by_xmp_alone(file_format: str) -> None:
    pixels = decode_image(with_packet(file_format, packet(6)), ImageRules(size=112))

    assert [int(level) for level in pixels[20, 56]] == pytest.approx(RED, abs=8)
    assert [int(level) for level in pixels[90, 56]] == pytest.approx(BLUE, abs=8)


@pytest.mark.parametrize(
    ("file_format", "exif", "expected"),
    [("JPEG", 3, 3), ("PNG", 0, 1), ("WEBP", 9, 1), ("JPEG", None, 6)],
)
def test_exif_decides_wherever_it_has_an_orientation(
    file_format: str, exif: int | None, expected: int
) -> None:
    """Cameras write EXIF; programs that turn a picture may leave an old packet behind."""
    assert image_file_parts(with_packet(file_format, packet(6), exif)).orientation == expected


PACKETS = [
    (f'<d {TIFF} tiff:Orientation="8"/>', 8),
    (f'<d {TIFF}\n tiff:Orientation = "5" />', 5),
    (f"<d {TIFF}><tiff:Orientation> 7\n</tiff:Orientation></d>", 7),
    ('<d xmlns:t="http://ns.adobe.com/tiff/1.0/" t:Orientation="2"/>', 2),
    (f'<d {TIFF} tiff:Orientation="0"/>', None),
    (f'<d {TIFF} tiff:Orientation="66"/>', None),
    (f'<d {TIFF} xtiff:Orientation="6"/>', None),
    (f'<!DOCTYPE d [<!ENTITY six "6">]><d {TIFF} tiff:Orientation="&six;"/>', None),
    ("tiff:Orientation=" * 4_000, None),
    ("<tiff:Orientation" + " " * 65_000, None),
]


def test_packets() -> None:
    """Both ways that programs write a property, under any prefix; nothing is expanded."""
    assert [(xmp, xmp_orientation(xmp.encode())) for xmp, _ in PACKETS] == PACKETS


def test_a_compressed_packet_is_not_opened() -> None:
    for flag, expected in ((1, 1), (0, 6)):
        file = encoded(halves(), "PNG")
        text = b"XML:com.adobe.xmp\0%c\0\0\0" % flag + packet(6)
        file = file[:33] + png_chunk(b"iTXt", text) + file[33:]
        assert image_file_parts(file).orientation == expected
