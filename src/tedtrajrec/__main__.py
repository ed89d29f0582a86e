"""``python -m tedtrajrec`` is the command line."""

from tedtrajrec.cli import main

if __name__ == "__main__":
    main()
