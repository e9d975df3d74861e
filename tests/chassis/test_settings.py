"""settings: the environment gives the settings, or the start stops by name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from tandem.chassis.serve.arguments import load_or_exit
from tandem.chassis.settings import SHARE_OVER_0, SettingsError, load, setting, table


@dataclass(frozen=True, kw_only=True)
class RoomSettings:
    """One setting of each kind."""

    address: str = setting("host:port to listen on")
    token: str = setting("what callers must know", default="", secret=True)
    seat_count: int = setting("people at once", default=4)
    patience_seconds: float = setting("how long to wait", default=1.5)
    door_open: bool = setting("whether anyone may come in", default=False)
    guests: tuple[str, ...] = setting("who is invited", default=())


def test_every_type_is_read_and_defaults_fill_the_rest() -> None:
    """Variables of other prefixes are none of ours."""
    environ = {
        "ROOM_ADDRESS": "[::]:7400",
        "ROOM_SEAT_COUNT": "12",
        "ROOM_PATIENCE_SECONDS": "0.25",
        "ROOM_DOOR_OPEN": "True",
        "ROOM_GUESTS": "ada, grace,",
        "HALL_ADDRESS": "elsewhere",
    }

    settings = load(RoomSettings, "ROOM_", environ)

    assert settings == RoomSettings(
        address="[::]:7400",
        seat_count=12,
        patience_seconds=0.25,
        door_open=True,
        guests=("ada", "grace"),
    )
    assert load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1"}).seat_count == 4


def test_a_missing_setting_is_named_with_its_meaning() -> None:
    """The messages say what to set, without a look at the code."""
    with pytest.raises(SettingsError, match="ROOM_ADDRESS is not set: host:port to listen on"):
        load(RoomSettings, "ROOM_", {})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ROOM_SEAT_COUNT", "lots", "ROOM_SEAT_COUNT: 'lots' is not of type int"),
        ("ROOM_SEAT_COUNT", "1.5", "ROOM_SEAT_COUNT: '1.5' is not of type int"),
        ("ROOM_PATIENCE_SECONDS", "nan", "ROOM_PATIENCE_SECONDS: 'nan' is not of type float"),
        ("ROOM_PATIENCE_SECONDS", "inf", "ROOM_PATIENCE_SECONDS: 'inf' is not of type float"),
        ("ROOM_DOOR_OPEN", "maybe", "ROOM_DOOR_OPEN: 'maybe' is not of type bool"),
        ("ROOM_ADRESS", "a:1", "ROOM_ADRESS is not known; did you mean ROOM_ADDRESS?"),
        ("ROOM_PORT_8080_TCP", "x", "ROOM_PORT_8080_TCP is not known; known: ROOM_ADDRESS, "),
    ],
)
def test_a_bad_setting_stops_the_start_by_name(variable: str, value: str, message: str) -> None:
    """Wrong types, and names that nothing reads: a misspelt limit would be no limit."""
    with pytest.raises(SettingsError) as caught:
        load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1", variable: value})

    assert message in str(caught.value)


def test_all_faults_are_reported_together() -> None:
    """One start is enough to learn them all."""
    with pytest.raises(SettingsError) as caught:
        load(RoomSettings, "ROOM_", {"ROOM_SEAT_COUNT": "x", "ROOM_DOOR": "1"})

    assert len(str(caught.value).splitlines()) == 3


def test_secrets_are_never_shown() -> None:
    """Settings are logged and shown; secrets in them are not."""
    settings = load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1", "ROOM_TOKEN": "hunter2"})

    assert settings.token == "hunter2"
    assert "hunter2" not in repr(settings)


def test_settings_cannot_change() -> None:
    """What was checked at the start holds until the end."""
    settings = load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1"})

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.seat_count = 5  # type: ignore[misc]


def test_the_table_has_a_row_for_each_setting() -> None:
    """It is what the README shows."""
    lines = table(RoomSettings, "ROOM_").splitlines()

    assert lines[2] == "| `ROOM_ADDRESS` | str | must be set | host:port to listen on |"
    assert lines[3] == "| `ROOM_TOKEN` | str | empty | what callers must know |"
    assert lines[4] == "| `ROOM_SEAT_COUNT` | int | `4` | people at once |"
    assert lines[6] == "| `ROOM_DOOR_OPEN` | bool | `false` | whether anyone may come in |"
    assert len(lines) == 2 + len(dataclasses.fields(RoomSettings))


def test_the_settings_argument_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_or_exit(RoomSettings, "ROOM_", ["--settings"], {})

    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == table(RoomSettings, "ROOM_")


@pytest.mark.parametrize("arguments", [[], ["--setting"]])
def test_faults_end_the_process_with_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Faults go to stderr, with no traceback: they are not ours."""
    with pytest.raises(SystemExit) as caught:
        load_or_exit(RoomSettings, "ROOM_", arguments, {})

    assert caught.value.code == 2
    assert "\n" not in capsys.readouterr().err.strip()


def test_a_type_that_no_variable_can_hold_is_a_programming_error() -> None:
    """Found by the first start that sets it, not taken for the user's fault."""

    @dataclass(frozen=True, kw_only=True)
    class OddSettings:
        sizes: dict[str, int] = setting("not readable", default=None)

    with pytest.raises(TypeError, match="cannot be of type"):
        load(OddSettings, "ODD_", {"ODD_SIZES": "1"})


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """One number of each unit, and two of a range of their own."""

    seat_count: int = setting("at least 1", default=1)
    wait_seconds: float = setting("at least 0", default=0.0)
    room_bytes: int = setting("at least 0", default=0)
    door_port: int = setting("0 to 65535", default=0)
    fill_share: float = setting("0 to 1", default=0.0)
    half_share: float = setting("over 0, to under 1", default=0.5, within=SHARE_OVER_0)
    gpu_number: int = setting("any", default=-1)


@pytest.mark.parametrize(
    ("name", "within", "out"),
    [
        ("seat_count", ("1", "9"), ("0", "-1")),
        ("wait_seconds", ("0", "1e9"), ("-0.1",)),
        ("room_bytes", ("0",), ("-1",)),
        ("door_port", ("0", "65535"), ("-1", "65536")),
        ("fill_share", ("0", "1"), ("-0.01", "1.01")),
        ("half_share", ("0.01", "1"), ("0", "1.5")),
        ("gpu_number", ("-1", "7"), ()),
    ],
)
def test_a_number_is_checked_by_its_unit(
    name: str, within: tuple[str, ...], out: tuple[str, ...]
) -> None:
    """Which its name ends in; a range of its own goes before."""
    variable = f"N_{name.upper()}"
    for text in within:
        load(Numbers, "N_", {variable: text})
    for text in out:
        with pytest.raises(SettingsError, match=f"^{variable} must be .*; it is"):
            load(Numbers, "N_", {variable: text})
