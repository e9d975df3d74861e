"""`tandem evaluate` and `tandem compare`.

evaluate, evaluate_options, compare  the commands
collection                           the galleries that are measured
served_measure, offline_measure      through the services; in this process
neighbour_measure                    orders by neighbours
"""
