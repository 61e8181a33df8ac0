"""`python -m kfuzz` and the `kfuzz` command."""

import sys

from kfuzz.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
