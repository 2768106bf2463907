"""`python -m cutlock`."""

from cutlock.cli import main

main(prog_name="cutlock")
