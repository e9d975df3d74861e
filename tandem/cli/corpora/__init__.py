"""Opens corpora and detectors' files by their names on the command line.

corpora                  the names, and what opens them
detector_files, regions  regions, and `tandem regions`
"""
