"""Reads the files in which published models keep a detector's regions, one file a layout.

- regions.py: what every reader returns, and what all share
- bottom_up_tsv.py, vinvl_tsv.py: tab-separated rows with base64 in them (tsv_rows.py)
- uniter_lmdb.py, region_archive.py: UNITER's database, and one archive an image
- m3p_h5.py: M3P's HDF5 file
- scan_precomp.py: SCAN's arrays
- region_layouts.py: finds the reader of a path

OSCAR's files of torch are read in modeling/image_sources/region_sources.py, because torch is
not used here.
"""
