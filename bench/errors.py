"""What stops a measurement."""


class BenchError(Exception):
    """The measurement has no meaning: something answered wrongly, or is missing."""
