"""The command line, `tandem …`, by noun.

entry, app                           the process, and all commands
command_line, old_names, refusals    parsing, old option names, errors
addresses, seeds, user_path          what several commands take
terminal                             what is printed, progress, signals
corpora, ingest, index, search       corpora by name; what writes, keeps and searches an index
models, train, neighbours, evaluate  what makes, exports and measures models
serve                                `up`, `demo`, `health`, `certificates`, `token`
"""
