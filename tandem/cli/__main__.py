"""python -m tandem.cli: the same as the `tandem` command."""

from tandem.cli.entry import main

if __name__ == "__main__":
    main()
