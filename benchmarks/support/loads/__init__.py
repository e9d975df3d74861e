"""Sends searches, and watches what processes hold.

- open_loop.py, steady_load.py: a fixed rate; sending.py: steady_load.py in its own process
- searches.py: one search at a time by either door
- growth.py: what processes hold over time, and whether it grows
"""
