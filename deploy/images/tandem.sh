#!/bin/sh
# The `tandem` command of the image.
exec python -m tandem.cli "$@"
