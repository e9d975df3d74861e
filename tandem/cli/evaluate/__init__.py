"""`tandem evaluate` and `tandem compare`.

evaluate, compare                the commands
served_measure, offline_measure  through the services; in this process
neighbour_measure                orders by neighbours
report_folder                    what is written
"""
