"""`tandem ingest`.

ingest, corpus_ingest    the command, and what `tandem up` ingests
source_job, sent_items   what of a source is sent, and the record of it
job_record               that record, a file on the caller's disk
item_ingest              sends items with progress
demo_note                what the shipped model cannot read
"""
