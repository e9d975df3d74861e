"""Finds the items nearest to an embedding in one index.

arrays             the types of arrays
searchable_index   `SearchableIndex`: texts and images, searched and changed under one lock
modality_index     `ModalityIndex`: one of the two, with its rows, attributes and FAISS index
embedding_rows     embeddings by row number
item_ids           ids by row, and the row of an id
row_file           the file that rows are mapped from
exact_scan         compares a query with rows, one by one
faiss_index        a FAISS index of any type; faiss_threads runs it on one core a search
index_type         which FAISS type to build for how many items
search_plan        whether a filter comes before, after or instead of FAISS
"""
