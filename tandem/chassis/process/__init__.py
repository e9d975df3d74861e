"""Configures an operating system process: memory, threads and open files.

- `memory`: what the C library keeps of freed memory, and what the garbage collector walks
- `threads`: pools whose threads all exist from the start, and the threads of libraries
- `side_thread`: a thread for requests that would hold the event loop too long
- `file_limit`: open files, and what is logged when they run out
"""
