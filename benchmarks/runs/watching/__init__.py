"""Parts of the watch run: the stack, its troubles, what must be seen."""
