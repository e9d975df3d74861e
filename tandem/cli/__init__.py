"""The command line, `tandem …`."""
