"""Moves all items of some shards to others, with their encodings, while they are searched.

mover       Mover: copies, follows the change log, and seals the sources
shard_link  calls one shard, again while it does not answer
move_files  how far a move is, and the new shard map for orchestrators
"""
