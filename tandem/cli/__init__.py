"""The command line, `tandem …`, by noun.

entry, app                           the process, and the list of commands
command_line, refusals               parsing, errors
options                              records of options, and what several commands take
terminal                             what is printed, progress, signals
smaller_jpeg                         a JPEG scaled down to be sent
corpora, ingest, index, search       corpora by name; what writes, keeps and searches an index
models, train, neighbours, evaluate  what makes, exports and measures models
golden                               what people judge, to measure by it
serve                                `up`, `demo`, `health`, `certificates`, `token`
"""
