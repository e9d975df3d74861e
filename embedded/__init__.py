"""Runs all of Tandem in one process, without ports: `tandem.Engine` and `tandem.AsyncEngine`.

- engine.py, async_engine.py: what users call; open_folder.py opens what both stand on, and
  model_folder.py finds or exports its model
- services.py: the stages of a search over one folder, put together as their services do it
- local_server.py: calls of the orchestrator, as gRPC calls, without a connection
- blocking_channel.py, loop_thread.py: the same calls from programs without an event loop;
  awaiting_channel.py: from those with one; answer_pump.py: streams for both
- __main__.py, hosted_rooms.py: another shape, `python -m embedded`: the orchestrator with services
  that it calls directly; hosted_stage.py: those calls, counted and with errors as over gRPC;
  operators_door.py: what operators of its shards call; hosted_gateway.py: HTTP from there
- own_names.py: errors that name an engine, not the client that it is

It stands on every service; only the command line imports it.
"""
