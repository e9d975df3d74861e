"""Keeps the remaining items of an answer in a cursor, and cuts pages from it.

cursor_wire  items to a cursor's message and back
cursor       seals and opens the bytes of a cursor
"""
