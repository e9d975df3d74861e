"""`tandem ingest`.

ingest, corpus_ingest  the command, and what `tandem up` ingests
own_index              the index of a corpus
demo_note              what the shipped model cannot read
"""
