"""Uses what the operating system gives: files, locks and child processes."""
