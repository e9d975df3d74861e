"""`tandem models`.

models                                   its commands
add_model, model_source, add_neighbours  what `add` exports
calibrate, swap                          probabilities; another version
any_checkpoint                           checkpoints of either kind
"""
