"""Every file of an archive is in a record or reported: none is left out silently."""

from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath

from hypothesis import example, given
from hypothesis import strategies as st

from tandem.corpus.errors import CorpusError
from tandem.corpus.left_out import FileFault, LeftOut, ReaderFault
from tandem.corpus.readers.tar_members import TarMember
from tandem.corpus.readers.tar_samples import tar_samples

ARCHIVE = Path("000.tar")


@dataclass(slots=True)
class AllTold(LeftOut):
    """Keeps each file's name and each refusal, not the first few."""

    files: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def pass_over(self, path: str | PurePath, why: FileFault | None = None) -> None:
        """As of any account."""
        self.files.append(str(path).removeprefix(f"{ARCHIVE}: "))
        LeftOut.pass_over(self, path, why)

    def refuse(self, error: CorpusError, fault: str = ReaderFault.MALFORMED) -> None:
        """As of any account."""
        self.refusals.append(str(error))
        LeftOut.refuse(self, error, fault)


_parts = st.sampled_from(["n", "m", "05", "6", "mask", "jpg", "v1", ""])
_names = st.builds(
    lambda folder, parts, extension: folder + ".".join(parts) + extension,
    st.sampled_from(["", "cats/", "v1.2/", "./"]),
    st.lists(_parts, min_size=1, max_size=3),
    st.sampled_from([".png", ".jpg", ".txt", ".json", ".TXT", ".heic", ""]),
)


@given(st.lists(_names, max_size=8, unique=True))
@example(["n.png", "n.txt", "n.1.png", "n.mask.png", "n.mask.txt"])
@example(["n.1.png", "n.2.txt", "n.1.2.png"])
def test_every_file_is_read_or_reported(names: list[str]) -> None:
    left_out = AllTold(goes_on=True)
    members = [TarMember(name, number, 1) for number, name in enumerate(names)]

    samples = tar_samples(iter(members), ARCHIVE, left_out)

    given_names = [each.name for files in samples.values() for each in files.values()]
    assert len(given_names) == len(set(given_names))
    assert not set(given_names) & set(left_out.files)
    untold = set(names) - set(given_names) - set(left_out.files)
    assert len({up_to_the_first_dot(name) for name in untold}) <= len(left_out.refusals)
    assert all(samples.values())
    assert {part for part, _ in samples} <= {0}


def up_to_the_first_dot(name: str) -> str:
    path = PurePosixPath(name)
    return str(path.with_name(path.name.partition(".")[0]))
