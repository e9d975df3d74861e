"""Runs all of Tandem in one process, without ports: `tandem.Engine`.

- engine.py: what users call; model_folder.py finds or exports its model
- services.py: the services' own rooms over one folder, put together as their processes do it
- local_server.py: calls between them, as gRPC calls, without a connection
- blocking_channel.py, loop_thread.py: the same calls from programs without an event loop

It stands on every service; only the command line imports it.
"""
