"""Stores the items of one shard in LMDB; the indexes in memory are derived from it.

item_store     `ItemStore`: reads, scans, and `apply`, which commits writes in one transaction
item_record    the bytes of one item
item_contents  contents, stored once for all generations of an alias
change_log, request_log   what changed in which order; answers to repeated requests
checksum       the CRC before every value
files, environment        the databases, and the LMDB environment under them
writer_lock, file_system, reader_age   what keeps other processes and disks safe
group_commit   one thread that commits the writes of many
check, verdict            verification, in a process that may die of it
backup, backup_manifest   copies of a store, of which a later one brings what changed
change_set, restored_store   how it brings that; how a store appears at once
"""
