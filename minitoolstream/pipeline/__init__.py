"""The four daemons of the tracked pipeline, in plain Python: from a subject's messages to rows in MySQL.

Each stage reads the file that the one before has left and leaves its own, which appears whole and is never written
over; so whatever is done twice, by a daemon that was killed or that lost its lease, ends in the same rows."""
