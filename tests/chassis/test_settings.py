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
    with pytest.raises(SettingsError, match="ROOM_ADDRESS is not set: host:port to listen on"):
        load(RoomSettings, "ROOM_", {})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ROOM_SEAT_COUNT", "lots", "ROOM_SEAT_COUNT: 'lots' is not of type int"),
        ("ROOM_PATIENCE_SECONDS", "nan", "ROOM_PATIENCE_SECONDS: 'nan' is not of type float"),
        ("ROOM_DOOR_OPEN", "maybe", "ROOM_DOOR_OPEN: 'maybe' is not of type bool"),
        ("ROOM_ADRESS", "a:1", "ROOM_ADRESS is not known; did you mean ROOM_ADDRESS?"),
    ],
)
def test_a_bad_setting_stops_the_start_by_name(variable: str, value: str, message: str) -> None:
    """Wrong types, and names that nothing reads: a misspelt limit would be no limit."""
    with pytest.raises(SettingsError) as caught:
        load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1", variable: value})

    assert message in str(caught.value)


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load(RoomSettings, "ROOM_", {"ROOM_SEAT_COUNT": "x", "ROOM_DOOR": "1"})

    assert len(str(caught.value).splitlines()) == 3


def test_secrets_are_never_shown() -> None:
    settings = load(RoomSettings, "ROOM_", {"ROOM_ADDRESS": "a:1", "ROOM_TOKEN": "hunter2"})

    assert settings.token == "hunter2"
    assert "hunter2" not in repr(settings)


def test_the_table_has_a_row_for_each_setting() -> None:
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
    with pytest.raises(SystemExit) as caught:
        load_or_exit(RoomSettings, "ROOM_", arguments, {})

    assert caught.value.code == 2
    assert "\n" not in capsys.readouterr().err.strip()


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """One number of each unit, and two of a range of their own."""

    seat_count: int = setting("at least 1", default=1)
    door_port: int = setting("0 to 65535", default=0)
    half_share: float = setting("over 0, to under 1", default=0.5, within=SHARE_OVER_0)
    gpu_number: int = setting("any", default=-1)


@pytest.mark.parametrize(
    ("name", "within", "out"),
    [
        ("seat_count", ("1", "9"), ("0", "-1")),
        ("door_port", ("0", "65535"), ("-1", "65536")),
        ("half_share", ("0.01", "1"), ("0", "1.5")),
        ("gpu_number", ("-1", "7"), ()),
    ],
)
def test_a_number_is_checked_by_its_unit(
    name: str, within: tuple[str, ...], out: tuple[str, ...]
) -> None:
    variable = f"N_{name.upper()}"
    for text in within:
        load(Numbers, "N_", {variable: text})
    for text in out:
        with pytest.raises(SettingsError, match=f"^{variable} must be .*; it is"):
            load(Numbers, "N_", {variable: text})
