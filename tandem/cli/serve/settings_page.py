"""Generates the tables of docs/settings.md from the declared settings: `make settings-doc`."""

from tandem.chassis import settings
from tandem.chassis.telemetry.log import LogSettings
from tandem.cli.serve.service_settings import SERVICES, SettingsGroup, service_groups, shared_groups

FIRST_HEADING = f"## {next(iter(SERVICES))}_svc"
"""The page above it is written by hand."""


def settings_tables() -> str:
    """Returns the page from the first service's table on."""
    parts = [
        f"## {service}_svc\n\n{_table(group)}\n"
        for service, group in zip(SERVICES, service_groups(), strict=True)
    ]
    parts.append("## Every service\n\nSettings that all services read.\n")
    for group in (*shared_groups(), SettingsGroup("LOG_", LogSettings)):
        meaning = (group.settings_class.__doc__ or "").splitlines()[0]
        parts.append(f"### {group.prefix}…\n\n{meaning}\n\n{_table(group)}\n")
    return "\n".join(parts)


def _table(group: SettingsGroup) -> str:
    return settings.table(group.settings_class, group.prefix)


if __name__ == "__main__":
    print(settings_tables(), end="")
