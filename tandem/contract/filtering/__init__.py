"""Defines items' attributes, and the conditions on them that a search can set.

attributes         values by name, and their limits; attribute_wire: to and from messages
filters            conditions, alone and combined, and their limits
filter_expression  a filter as text
"""
