"""How fast the stream is, as ratios to raw PUTs of the same object store in the same run."""
