"""What commands print, and the signals that stop them.

console, progress        lines and bars
json_answer              `--json`
stop_signals             Ctrl-C, SIGTERM and SIGHUP
"""
