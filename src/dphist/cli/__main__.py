"""Run the command line as ``python -m dphist.cli``."""

from dphist.cli import main

main()
