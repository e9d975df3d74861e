"""Configures an operating system process: memory, threads and open files.

- `allocator`: what the C library keeps of freed memory
- `long_lived`: what the garbage collector need not walk
- `started_threads`: pools whose threads all exist from the start
- `side_thread`: a thread for requests that would hold the event loop too long
- `blas_threads`: matrix products in the thread that asks for them
- `file_limit`: open files, and what is logged when they run out
"""
