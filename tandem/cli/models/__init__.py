"""`tandem models`.

models                            list, describe and remove
add_model, add_neighbours         what `add` exports
calibrate, swap, combine, verify  each the command of its name
any_checkpoint                    checkpoints of either kind
"""
