"""How fast Spark replays; apart from the other scenarios, since it needs Spark."""
