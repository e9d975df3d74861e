"""Archives by the places of their files, and those made to do harm, each refused by name."""

import gzip
import io
import random
import tarfile
import time
from pathlib import Path

import pytest

from tandem.corpus.errors import ArchiveUnsafe, CorpusError, CorpusMalformed
from tandem.corpus.readers.tar_members import MAX_HEADER_BYTES, tar_members

BLOCK = 512


def a_header(
    name: str = "a.jpg", size: int = 0, kind: bytes = tarfile.REGTYPE, **more: object
) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.type = kind
    for field, value in more.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def in_blocks(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def pax(fields: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return a_header("pax", len(fields), kind) + in_blocks(fields)


def an_archive(folder: Path, *parts: bytes) -> Path:
    path = folder / "000.tar"
    path.write_bytes(b"".join(parts) + bytes(2 * BLOCK))
    return path


def plain(tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """Returns an archive of three files and a folder, without its end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        for name in ("a.jpg", "cats/b.jpg", f"{'long/' * 30}ž.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 600 + len(name)
            archive.addfile(info, io.BytesIO(name.encode() + bytes(600)))
        folder = tarfile.TarInfo("dogs")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return buffer.getvalue()


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_are_found_by_their_offsets(tmp_path: Path, tar_format: int) -> None:
    path = tmp_path / "000.tar"
    path.write_bytes(plain(tar_format))

    members = list(tar_members(path))

    data = path.read_bytes()
    assert [member.name for member in members] == ["a.jpg", "cats/b.jpg", f"{'long/' * 30}ž.jpg"]
    for member in members:
        name = member.name.encode()
        assert member.size_bytes == 600 + len(member.name)
        assert data[member.offset_bytes :].startswith(name + bytes(500))


UNSAFE = {
    "link": (
        [a_header("a.jpg", kind=tarfile.LNKTYPE, linkname="/etc/passwd")],
        "is a link to '/etc",
    ),
    "device": ([a_header("a.jpg", kind=tarfile.CHRTYPE)], "is a device, a pipe"),
    "unknown": ([a_header("a.jpg", kind=b"Z")], "is a device, a pipe or something unknown"),
    "absolute": ([a_header("/etc/a.jpg")], "leads out of the archive"),
    "above": ([a_header("cats/../../a.jpg")], "leads out of the archive"),
    "absolute by pax": ([pax(b"15 path=/a.jpg\n"), a_header()], "leads out of the archive"),
    "holes": ([pax(b"22 GNU.sparse.map=0,1\n"), a_header()], "is a file with holes"),
    "long name": (
        [a_header("l", 2**40, tarfile.GNUTYPE_LONGNAME)],
        "has a header of more than 16,384 bytes",
    ),
    "many headers": ([pax(b"11 comment=\n")] * 2_000, "has a header of more than 16,384"),
    "endless holes": (
        [a_header("a.jpg", kind=tarfile.GNUTYPE_SPARSE)[:482] + b"\1" + bytes(29)]
        + [bytes(504) + b"\1" + bytes(7)] * 2_000,
        "has a header of more than 16,384",
    ),
    "overlap": (
        [pax(b"13 size=5120\n", tarfile.XGLTYPE), a_header("a.jpg", 0), a_header("b.jpg")],
        "'b.jpg' lies over the one before",
    ),
    "negative by pax": ([pax(b"14 size=-5120\n"), a_header()], "claims -5,120 bytes"),
    "negative header": (
        [a_header("p", -1024, tarfile.XHDTYPE)],
        "has a header of more than 16,384",
    ),
}


def resealed(header: bytes) -> bytes:
    """Returns a header whose checksum is right again."""
    filled = header[:148] + b" " * 8 + header[156:BLOCK]
    return header[:148] + b"%06o\0 " % sum(filled) + header[156:]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_members_are_refused(tmp_path: Path, name: str) -> None:
    parts, says = UNSAFE[name]
    hostile = b"".join(parts)
    hostile = resealed(hostile[:BLOCK]) + hostile[BLOCK:]
    start_time = time.process_time()

    with pytest.raises(ArchiveUnsafe, match=rf"000\.tar.*{says}"):
        list(tar_members(an_archive(tmp_path, hostile)))
    with pytest.raises(ArchiveUnsafe, match=rf"000\.tar.*{says}"):
        list(tar_members(an_archive(tmp_path, a_header("good.jpg", 3), in_blocks(b"abc"), hostile)))

    assert time.process_time() - start_time < 5


def test_the_makers_of_hostile_archives_make_good_ones_too(tmp_path: Path) -> None:
    fields = b"14 path=b.jpg\n"
    largest = a_header("l", MAX_HEADER_BYTES - 2 * BLOCK, tarfile.GNUTYPE_LONGNAME)
    path = an_archive(
        tmp_path,
        resealed(a_header("a.jpg", 3)),
        in_blocks(b"abc"),
        pax(fields),
        a_header(),
        largest,
        in_blocks(b"c.jpg" + bytes(MAX_HEADER_BYTES - 2 * BLOCK - 5)),
        a_header(),
    )

    assert [each.name for each in tar_members(path)] == ["a.jpg", "b.jpg", "c.jpg"]


def test_a_damaged_header_is_not_read_as_the_end(tmp_path: Path) -> None:
    """tarfile alone would stop there in silence: the positive control shows that it does."""
    second = bytearray(a_header("b.jpg"))
    second[0] ^= 1
    path = an_archive(tmp_path, a_header("a.jpg"), bytes(second), a_header("c.jpg"))

    with tarfile.open(path) as archive:
        assert archive.getnames() == ["a.jpg"]
    with pytest.raises(CorpusMalformed, match=r"000\.tar is damaged or cut short at byte 512"):
        list(tar_members(path))


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = plain()
    used = whole.rstrip(b"\0")
    path = tmp_path / "000.tar"
    for length in range(0, len(used), 300):
        path.write_bytes(whole[:length])
        with pytest.raises(CorpusMalformed, match=r"000\.tar is"):
            list(tar_members(path))


def test_a_compressed_archive_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A picture cannot be read from its place in it."""
    path = tmp_path / "000.tar"
    path.write_bytes(gzip.compress(plain()))

    with pytest.raises(CorpusMalformed, match=r"is not a whole tar archive .*unpack it"):
        list(tar_members(path))


def test_damage_raises_only_named_errors(tmp_path: Path) -> None:
    """600 archives with bytes changed, most of them in headers: read, or refused by name."""
    dice = random.Random(5)
    path = tmp_path / "000.tar"
    outcomes = {True: 0, False: 0}
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        whole = plain(tar_format).rstrip(b"\0") + bytes(2 * BLOCK)
        for _ in range(300):
            data = bytearray(in_blocks(whole))
            start = dice.randrange(0, len(data), BLOCK)
            for _ in range(dice.randrange(1, 4)):
                data[start + dice.randrange(BLOCK)] = dice.randrange(256)
            if dice.random() < 0.8:  # a checksum that fits lets the damage in
                data[start : start + BLOCK] = resealed(bytes(data[start : start + BLOCK]))
            path.write_bytes(data)
            try:
                list(tar_members(path))
                outcomes[True] += 1
            except CorpusError:
                outcomes[False] += 1

    assert min(outcomes.values()) > 60, outcomes
