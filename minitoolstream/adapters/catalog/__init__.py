"""The catalog's rows: SQLite for one machine, CQL (Cassandra, ScyllaDB) for many; and the peers' object stores."""
