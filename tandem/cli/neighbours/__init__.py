"""`tandem neighbours`.

neighbours                                               the command
neighbour_gallery, neighbour_corpora, served_neighbours  which records; computed here or served
"""
