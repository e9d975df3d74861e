"""Finds items by the words of their texts, with BM25.

item_text      which text an item has
keyword_index  the texts of one index in memory, and their search
keyword_build  fills the indexes from the item store, alongside searches
keyword_hit    what a search by words finds
"""
