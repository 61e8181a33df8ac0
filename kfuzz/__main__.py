"""`python -m kfuzz` and the `kfuzz` command."""

import faulthandler
import sys


def main() -> int:
    """Run the command line; Ctrl-C is handled while it is imported, too."""
    faulthandler.enable()  # a user's file may end the process as it is imported
    try:
        from kfuzz import app
        from kfuzz.targets import load
    except KeyboardInterrupt:
        sys.stderr.write("kfuzz: aborted\n")
        return 130
    load.end_by(app.end)
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
