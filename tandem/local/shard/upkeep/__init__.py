"""Looks after a shard's indexes: loads, rebuilds, saves and checks them.

index_loader        an index from its snapshot and the changes since, or from the store
maintenance         `Maintenance`: the one thread, and what it does when
rebuild             builds a FAISS index aside and swaps it in, or adds rows to it
index_build, recall_sample   build a type and tune it to a recall target
snapshot            the files of a snapshot; snapshot_check opens one in a child process
snapshot_schedule   when a snapshot is due, and what the newest covers
live_recall, recall_check   sample users' searches and repeat them exactly
record_check        takes items with damaged records out of the indexes
tuning_file         what operators asked of each index
advice              measures what other FAISS types would cost and find
"""
