"""`tandem golden`: start, judge and status of a set of judged queries from an index.

judge_server  serves the page for judging, whose files are in page/ (sources in console/)
"""
