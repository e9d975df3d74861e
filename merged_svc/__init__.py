"""Runs the orchestrator with other services in its process: `python -m merged_svc`.

hosted_services   the services that are in this process; hosted_stage: calls of them, counted
hosted_gateway    HTTP from there
operators_server  what operators of its shards call
serving           one process over a folder, for `tandem up --one-process`

It stands on every service.
"""
