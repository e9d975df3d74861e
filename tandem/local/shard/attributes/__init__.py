"""Keeps items' attributes in columns, so that a filter is evaluated over all items at once.

attribute_columns   `AttributeColumns`: a column for each name and type; evaluates filters
typed_columns       the columns of numbers, texts and text lists
row_values          values by row, dense or sparse
text_dictionary     texts as codes, and the codes that a condition matches
growing_array       arrays with room for more
"""
