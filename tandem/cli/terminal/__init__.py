"""What commands print, and the signals that stop them.

console, progress        lines and bars
json_answer, plain_json  `--json`
stop_signals             Ctrl-C, SIGTERM and SIGHUP
"""
