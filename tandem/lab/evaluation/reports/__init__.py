"""Reports evaluations as JSON, page and picture, and compares them.

- report.py: ranks and their metrics; spread.py: the mean of several seeds
- served_figures.py: what a server's answers say besides ranks
- report_markdown.py, plots.py: the page and its picture
- comparison.py: several systems on the same queries
- published.py: the paper's figures; evaluation_time.py: its Table 4
- machine.py, checkpoint_origin.py: what a report says of machine and model
"""
