-- What db/pipeline_ddl.sql makes, for SQLite. Times are UTC, as text.
CREATE TABLE IF NOT EXISTS pipeline_tracking (
  filename TEXT NOT NULL,
  shard INTEGER NOT NULL,
  event_ingest_status TEXT NOT NULL DEFAULT 'new' CHECK (event_ingest_status IN ('new', 'started', 'done', 'failed')),
  shard_splitter_status TEXT NOT NULL DEFAULT 'new' CHECK (shard_splitter_status IN ('new', 'started', 'done', 'failed')),
  shard_worker_status TEXT NOT NULL DEFAULT 'new' CHECK (shard_worker_status IN ('new', 'started', 'done', 'failed')),
  mysql_sender_status TEXT NOT NULL DEFAULT 'new' CHECK (mysql_sender_status IN ('new', 'started', 'done', 'failed')),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  owner TEXT NULL,
  lease_until TEXT NULL,
  event_ingest_attempts INTEGER NOT NULL DEFAULT 0,
  event_ingest_error TEXT NULL,
  shard_splitter_attempts INTEGER NOT NULL DEFAULT 0,
  shard_splitter_error TEXT NULL,
  shard_worker_attempts INTEGER NOT NULL DEFAULT 0,
  shard_worker_error TEXT NULL,
  mysql_sender_attempts INTEGER NOT NULL DEFAULT 0,
  mysql_sender_error TEXT NULL,
  PRIMARY KEY (filename, shard)
);
CREATE INDEX IF NOT EXISTS queue_shard_splitter
  ON pipeline_tracking (shard_splitter_status, event_ingest_status, created_at, filename, shard);
CREATE INDEX IF NOT EXISTS queue_shard_worker
  ON pipeline_tracking (shard_worker_status, shard_splitter_status, created_at, filename, shard);
CREATE INDEX IF NOT EXISTS queue_mysql_sender
  ON pipeline_tracking (mysql_sender_status, shard_worker_status, created_at, filename, shard);
CREATE INDEX IF NOT EXISTS leases ON pipeline_tracking (lease_until);
