"""Frees a trace from the device that it was made on.

A trace records the device of every tensor that the model makes on its way, such as positions and
masks: on a GPU, a model traced on a CPU would make them on the CPU. Here they follow the device of
the first input instead.
"""

import torch


def free_of_device(traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns the trace, changed in place if it names a device."""
    graph = traced.graph
    if not _devices(traced.inlined_graph):
        return traced
    # The first input of the whole model, because a part of it may have none.
    torch._C._jit_pass_inline(graph)  # noqa: SLF001  torch has no public way to change a graph
    first = next(value for value in graph.inputs() if value.type().kind() == "TensorType")
    node = graph.create("prim::device", [first], 1)
    node.output().setType(torch._C.DeviceObjType.get())  # noqa: SLF001
    graph.prependNode(node)
    for value in _devices(graph):
        value.replaceAllUsesWith(node.output())
    torch._C._jit_pass_dce(graph)  # noqa: SLF001
    return traced


def _devices(graph: torch._C.Graph) -> list[torch._C.Value]:
    """Returns the constants in use that are devices."""
    constants = [node.output() for node in graph.findAllNodes("prim::Constant", recurse=True)]  # type: ignore[attr-defined]
    return [value for value in constants if value.type().kind() == "DeviceObjType" and value.uses()]
