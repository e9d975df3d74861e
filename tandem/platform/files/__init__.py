"""Reads and writes files: typed, whole or not at all, and private to their owner.

- json_object: a JSON file as an object with typed fields; field_settings: the same of `field=value`
- whole_file: replaces a file atomically; tensor_file: the same for tensors
- object_store: a folder of S3, Google Cloud Storage, Azure or a file system
- shared_lock: a lock that many readers share and one writer holds alone
- private_files: new files and folders that only their owner reads
"""
