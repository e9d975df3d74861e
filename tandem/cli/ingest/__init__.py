"""`tandem ingest`.

ingest, corpus_ingest  the command, and what `tandem up` ingests
demo_note              what the shipped model cannot read
"""
