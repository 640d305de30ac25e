-- What db/shard_ddl.sql makes, for SQLite.
CREATE TABLE IF NOT EXISTS pipeline_result (
  filename TEXT NOT NULL,
  shard INTEGER NOT NULL,
  item INTEGER NOT NULL,
  item_key TEXT NOT NULL,
  value TEXT NOT NULL CHECK (json_valid(value)),
  PRIMARY KEY (filename, shard, item)
)
