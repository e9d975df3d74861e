"""The names of answers are strings, and all of the contract's."""

import copy
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from tandem.contract.search.answer_names import (
    DegradationKind,
    ErrorReason,
    NamedAnswer,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.errors import ERROR_CLASSES
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb

SOURCE = Path(__file__).parents[2] / "tandem/contract/search/answer_names.py"


@pytest.mark.parametrize(
    ("named", "contract", "prefix"),
    [
        (DegradationKind, pb.Degradation, "DEGRADATION_"),
        (RerankStopReason, pb.RerankStop, "RERANK_STOP_"),
        (NeighbourStopReason, pb.NeighbourStop, "NEIGHBOUR_STOP_"),
        (OrderedBy, pb.OrderingStage, "ORDERING_STAGE_"),
        (ErrorReason, error_reason_pb2.ErrorReason, "ERROR_REASON_"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_name_of_the_contract_is_there(
    named: type[NamedAnswer], contract: EnumTypeWrapper, prefix: str
) -> None:
    names = {name.removeprefix(prefix) for name in contract.DESCRIPTOR.values_by_name}

    assert names - {"UNSPECIFIED"} == {each.name for each in named} - {"UNSPECIFIED"}
    assert all(each.value == each.name for each in named if each.name != "UNSPECIFIED")


def test_a_value_of_a_newer_server_keeps_its_name() -> None:
    """It is equal to that string, and to itself."""
    newer = DegradationKind("SOMETHING_NEWER")

    assert isinstance(newer, DegradationKind)
    assert (newer.name, newer.value, str(newer)) == ("SOMETHING_NEWER",) * 3
    assert newer == DegradationKind("SOMETHING_NEWER") == "SOMETHING_NEWER"
    assert newer != DegradationKind.RERANK_PARTIAL
    assert newer not in list(DegradationKind)
    assert pickle.loads(pickle.dumps(newer)) == copy.deepcopy(newer) == newer
    with pytest.raises(ValueError, match="7"):
        DegradationKind(7)


def test_the_reasons_are_those_of_the_errors() -> None:
    """So `error.reason == ErrorReason.OVERLOADED` reads."""
    assert {each.value for each in ErrorReason} - {"UNSPECIFIED"} == set(ERROR_CLASSES)


@pytest.mark.parametrize("minor", [10, 12])
def test_other_pythons_have_them_too(minor: int) -> None:
    """Enums of strings changed in 3.11 and 3.12. The file is run by itself."""
    found = shutil.which(f"python3.{minor}")
    # Managers of Pythons have a program for versions that are not chosen.
    if found is None or subprocess.run([found, "-V"], capture_output=True).returncode:
        pytest.skip(f"there is no python3.{minor} here")
    source = SOURCE.read_text(encoding="utf-8")
    code = (
        source.replace("from typing_extensions import Self", "Self = object")
        + """
newer = DegradationKind("NEWER")
stop = RerankStopReason.TIME
print(f"{stop} {stop!s} {newer} {newer.name}", {"TIME": 1}[stop], bool(OrderedBy("")))
"""
    )
    ended = subprocess.run([found, "-c", code], capture_output=True, text=True)

    assert ended.stdout == "TIME TIME NEWER NEWER 1 False\n", ended.stderr
