"""The command, for ``python -m dphist``."""

from dphist.cli import main

if __name__ == "__main__":
    main()
