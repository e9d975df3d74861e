"""Puts all stages together in one process: `tandem.Engine` and `AsyncEngine`.

engine, async_engine   the engines: their folder, and the calls of Client and AsyncClient
open_folder            the folder that an engine holds; model_folder: its model, or an export
local_stages           the stages over the folder's stores and model, and their orchestrator
async_local, local     carry a client's calls to it; local is generated from async_local
in_loop, loop_thread   run calls in the engine's event loop, in a thread of its own
answer_pump            streams from there
gallery_report         measures recall, as `tandem evaluate` does
"""
