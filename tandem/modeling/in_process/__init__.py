"""Runs an exported model in this process, where `tandem.Engine` has no Triton.

- in_process_runner.py: the front door, which imports no torch before a model is needed
- loaded_parts.py: the model's files, loaded and run; model_threads.py: the threads for it
"""
