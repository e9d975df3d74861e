"""Defines items' attributes, and the conditions on them that a search can set.

attributes         values by name, and their limits; attribute_wire: to and from messages
plain_values       what is stored of the values and names that tables have
filters            conditions, alone and combined, and their limits
filter_expression  a filter as text
"""
