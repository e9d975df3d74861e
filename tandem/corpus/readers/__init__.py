"""Reads corpora on disk; each reader returns a `RecordStream` of one split.

- karpathy.py, multi30k.py, caption_list.py, picture_folder.py, webdataset.py, table.py: the
  layouts
- text_tables.py, parquet.py, hub_dataset.py: rows of tables
- record_stream.py: unique ids, counts and what was left out, for every layout
- splits.py, shards.py: names of splits, and the files of each
- caption_text.py, image_sources.py: captions in text files, pictures in files
- tar_members.py, tar_samples.py: files in an archive, and the records that they form
- plain_file.py: opens files and lists folders, never outside the corpus
"""
