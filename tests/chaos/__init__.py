"""`make chaos`: parts of a stack are killed at random, again and again, while everything is in use; then every promise
is checked. `python -m tests.chaos --help` says how long, and with which seed."""
