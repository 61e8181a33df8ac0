"""`python -m kfuzz` and the `kfuzz` command."""

import sys


def main() -> int:
    """Run the command line, watched from outside; return its exit code."""
    from kfuzz.cli.guard import watched

    return watched(_obey)


def _obey() -> int:
    """Run the command line; Ctrl-C is handled while it is imported, too."""
    try:
        from kfuzz import app
    except KeyboardInterrupt:
        sys.stderr.write("kfuzz: aborted\n")
        return 130
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
