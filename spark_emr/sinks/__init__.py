"""Where replayed messages go: Parquet files with a manifest, another subject, a table of MySQL or MariaDB."""
