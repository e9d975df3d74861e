"""Lists the indexes of all shards, describes one, and says which generation serves.

index_list, index_survey   over all shards
alias_book   keeps the records of all aliases; router   finds a call's generation and models
calibrations what the scores of an index mean, as its note says
follower   keeps a generation equal to another; pace   how much time it may take
keeper, kept_generations   the lease of an alias, and what its holder does: follow, promote, drop
generations   what operators ask for, and how far each generation is
"""
