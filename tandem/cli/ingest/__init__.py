"""`tandem ingest` and `sync`.

ingest, corpus_ingest    the command, and what `tandem up` ingests
sync, sync_plan          `tandem sync`, and its plan
source_job, sent_items   what of a source is sent, and the record of it
job_record               that record, a file on the caller's disk
duplicates, look_alikes  pictures of a source that are the same
item_ingest              sends items with progress
demo_note                what the shipped model cannot read
"""
