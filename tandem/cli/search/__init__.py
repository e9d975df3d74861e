"""`tandem search`.

search                       the command
search_output, search_table  what it prints
found_files, empty_answer    `--save`; why nothing was found
replay                       `--bundle`, and `tandem replay`
"""
