"""Settings in the environment of `tandem up`: handed on, or refused before anything starts."""

from pathlib import Path

import pytest

from tandem.cli.serve.service_settings import given_settings, service_groups
from tandem.cli.serve.settings_page import FIRST_HEADING, settings_tables
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.start_refused import StartRefused

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_settings_are_handed_on_each_to_its_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = given_settings(
        {
            "INDEX_RECALL_TARGET": "0.9",
            "ORCHESTRATOR_MAX_INFLIGHT_COUNT": "5",
            "DOOR_REFLECTION": "false",
            "PATH": "/bin",
        }
    )
    stack = LocalStack(tmp_path, tmp_path, Ports.free(1), settings=given.variables)

    assert stack.command("index-0")[1]["INDEX_RECALL_TARGET"] == "0.9"
    assert stack.command("orchestrator")[1]["ORCHESTRATOR_MAX_INFLIGHT_COUNT"] == "5"
    assert "INDEX_RECALL_TARGET" not in stack.command("encoder")[1]
    for name in stack.service_names():
        assert stack.command(name)[1]["DOOR_REFLECTION"] == "false"
    assert "PATH" not in given.variables
    assert given.notes == []


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("INDEX_RECALL_TARGET", "nonsense", "INDEX_RECALL_TARGET: 'nonsense' is not of type float"),
        ("ENCODER_THREAD_COUNT", "0", "ENCODER_THREAD_COUNT must be at least 1; it is 0"),
        ("INDEX_RECALL_TARGT", "0.9", "did you mean INDEX_RECALL_TARGET?"),
        ("ENCODER_ADDRESS", "0.0.0.0:1", "ENCODER_ADDRESS is set by tandem up itself"),
        ("INDEX_STORE_PATH", "/x", "--data names the folder"),
    ],
)
def test_what_is_wrong_is_refused_by_name(variable: str, text: str, why: str) -> None:
    """Everything that is wrong is listed at once, and nothing that is right."""
    environ = {"RERANK_THREAD_COUNT": "2", "INDEX_THREAD_COUNT": "two", variable: text}

    with pytest.raises(StartRefused) as refused:
        given_settings(environ)

    assert why in str(refused.value)
    assert "INDEX_THREAD_COUNT" in str(refused.value)
    assert "RERANK_THREAD_COUNT" not in str(refused.value)


def test_variables_that_kubernetes_sets_for_a_service_are_ignored() -> None:
    links = {
        "INDEX_PORT": "tcp://10.0.0.1:80",
        "INDEX_PORT_80_TCP_ADDR": "10.0.0.1",
        "INDEX_SERVICE_HOST": "10.0.0.1",
        "ORCHESTRATOR_SERVICE_PORT": "7400",
    }

    given = given_settings(links)

    assert not given.variables
    assert given.notes == [f"{name} is Kubernetes' own, and is passed over" for name in links]


def test_settings_that_the_stack_itself_sets_are_refused(tmp_path: Path) -> None:
    """Or a user's value would go before the stack's own, which its other parts go by."""
    stack = LocalStack(tmp_path, tmp_path, Ports.free(1))
    tuned = {"ORCHESTRATOR_MAX_INFLIGHT_COUNT"}  # a number that the machine's cores suggest
    known = {f"{group.prefix}{name}" for group in service_groups() for name in group.names}

    for service in stack.service_names():
        for variable in stack.command(service)[1].keys() & (known - tuned):
            with pytest.raises(StartRefused, match="is set by tandem up itself"):
                given_settings({variable: "1"})


def test_the_page_of_settings_is_current() -> None:
    """`make settings-doc` writes it; every variable of every service is on it."""
    page = PAGE.read_text(encoding="utf-8")

    assert page[page.index(FIRST_HEADING) :] == settings_tables(), "run make settings-doc"
    for group in service_groups():
        for name in group.names:
            assert f"| `{group.prefix}{name}` |" in page
