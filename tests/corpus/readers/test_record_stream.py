"""Records as they come: no two items of one id, and an account of what does not."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tandem.corpus.errors import CorpusMalformed, NothingRead
from tandem.corpus.left_out import FileFault, LeftOut, ReaderFault
from tandem.corpus.readers import record_stream
from tandem.corpus.readers.image_sources import NoImage
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.records import Caption, Record


def a_record(record_id: str, *caption_ids: str) -> Record:
    captions = tuple(Caption(each, "a cat", "en") for each in caption_ids)
    return Record(record_id, captions, "test", record_id, NoImage(f"{record_id}.jpg", "none"))


def stream(*records: Record, goes_on: bool = True) -> RecordStream:
    return RecordStream(records, "pets", LeftOut(goes_on=goes_on), total=len(records))


@pytest.mark.parametrize(
    "other",
    [
        a_record("a"),
        a_record("b", "a"),
        a_record("a#0"),
        a_record("b", "b#0", "b#0"),
        a_record("d#e", "d#e#f"),
        a_record("b", "other"),
        a_record("cafe\N{COMBINING ACUTE ACCENT}"),
    ],
    ids=range(7),
)
def test_two_items_of_one_id_are_refused(other: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of ids that are kept sorted, because there are many."""
    monkeypatch.setattr(record_stream, "_RECENT_COUNT", 3)
    first = [a_record("a", "a#0"), a_record("café"), a_record("d", "d#e#f", "other")]

    records = stream(*first, other, last := a_record("z"))
    assert list(records) == [*first, last]
    assert records.left_out.counts == {ReaderFault.SAME_ID: 1}

    stopping = stream(*first, other, goes_on=False)
    assert [next(stopping) for _ in first] == first
    with pytest.raises(CorpusMalformed, match=r"would be called .* as is a record"):
        next(stopping)


def test_an_id_with_a_lone_surrogate_is_refused() -> None:
    """It could be neither sent nor shown: not in the report either."""
    records = stream(a_record("\ud83d"), a_record("a", "a#\udce9"), a_record("z"))

    assert [each.record_id for each in records] == ["z"]
    assert records.left_out.counts == {ReaderFault.ID_UNREADABLE: 2}
    assert "\n".join(records.left_out.lines()).encode()


def test_a_refused_record_uses_no_ids() -> None:
    records = stream(a_record("a"), a_record("b", "a", "c"), a_record("c"))

    assert [each.record_id for each in records] == ["a", "c"]


def test_nothing_read_is_an_error_that_says_what_there_is() -> None:
    """It is raised once, and not where nothing was requested."""
    left_out = LeftOut()
    left_out.pass_over("a.bmp")
    records = RecordStream((), "pets", left_out)

    with pytest.raises(NothingRead, match=r"pets: nothing was read; passed over: 1 \(\.bmp 1\)"):
        next(records)
    assert next(records, None) is None
    assert list(stream(a_record("a")).limited(0)) == []


def test_no_more_records_are_read_than_requested() -> None:
    given: list[str] = []

    def records() -> Iterator[Record]:
        for name in ("a", "a", "b", "c"):
            given.append(name)
            yield a_record(name)

    some = RecordStream(records(), "pets", LeftOut(goes_on=True), total=4).limited(2)

    assert some.total == 2
    assert [each.record_id for each in some] == ["a", "b"]
    assert given == ["a", "a", "b"]


def test_pictures_without_captions_are_counted() -> None:
    unreadable = replace(a_record("c"), captions_fault="c.txt is not UTF-8")
    records = stream(a_record("a"), a_record("b", "b#0"), unreadable)

    list(records)

    assert list(records.left_out.report()) == ["pictures without captions: 1"]


def test_a_report_says_how_many_of_each_and_the_first_by_name() -> None:
    """Three files of each kind are named; what two splits of one file report counts once."""
    left_out = LeftOut(goes_on=True)
    for number in (*range(5), 0):
        left_out.pass_over(f"{number}.BMP")
    left_out.pass_over("pipe.jpg", FileFault.NOT_PLAIN)
    for _ in range(2):
        left_out.refuse(CorpusMalformed("list.tsv: line 3 has 1 columns"))

    assert list(left_out.report()) == [
        "skipped records: 1 (not as its layout allows 1)",
        "  list.tsv: line 3 has 1 columns",
        "passed over: 6 (.bmp 5, no plain file 1)",
        "  .bmp: 0.BMP, 1.BMP, 2.BMP and 2 more",
        "  no plain file: pipe.jpg",
    ]
    assert left_out.all_counts == {
        "not as its layout allows": 1,
        "passed over: .bmp": 5,
        "passed over: no plain file": 1,
    }
    assert list(LeftOut().report()) == ["left out: nothing"]
