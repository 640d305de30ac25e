"""How fast the catalog is, apart from the other scenarios, since it needs Cassandra."""
