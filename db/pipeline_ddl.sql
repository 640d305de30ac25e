-- The pipeline's table, for MariaDB 10.6 or newer and MySQL 8.0 or newer, in a database of its own (pipeline_db).
-- Applied when the service starts; safe to run again. db/pipeline_ddl_sqlite.sql is the same for SQLite.
--
-- A stage's *_attempts and *_error tell how often it was started and what its last failure said. owner and lease_until
-- belong to the one stage that is `started`; when lease_until is over, it counts as `new`. Times are UTC.
CREATE TABLE IF NOT EXISTS pipeline_tracking (
  filename VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  shard INT UNSIGNED NOT NULL,
  event_ingest_status ENUM('new', 'started', 'done', 'failed') NOT NULL DEFAULT 'new',
  shard_splitter_status ENUM('new', 'started', 'done', 'failed') NOT NULL DEFAULT 'new',
  shard_worker_status ENUM('new', 'started', 'done', 'failed') NOT NULL DEFAULT 'new',
  mysql_sender_status ENUM('new', 'started', 'done', 'failed') NOT NULL DEFAULT 'new',
  created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  owner VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NULL,
  lease_until DATETIME(6) NULL,
  event_ingest_attempts INT UNSIGNED NOT NULL DEFAULT 0,
  event_ingest_error TEXT CHARACTER SET utf8mb4 NULL,
  shard_splitter_attempts INT UNSIGNED NOT NULL DEFAULT 0,
  shard_splitter_error TEXT CHARACTER SET utf8mb4 NULL,
  shard_worker_attempts INT UNSIGNED NOT NULL DEFAULT 0,
  shard_worker_error TEXT CHARACTER SET utf8mb4 NULL,
  mysql_sender_attempts INT UNSIGNED NOT NULL DEFAULT 0,
  mysql_sender_error TEXT CHARACTER SET utf8mb4 NULL,
  PRIMARY KEY (filename, shard),
  -- A queue is read in the order of its index: a claim locks what it takes and nothing else.
  KEY queue_shard_splitter (shard_splitter_status, event_ingest_status, created_at, filename, shard),
  KEY queue_shard_worker (shard_worker_status, shard_splitter_status, created_at, filename, shard),
  KEY queue_mysql_sender (mysql_sender_status, shard_worker_status, created_at, filename, shard),
  KEY leases (lease_until)
) ENGINE = InnoDB;
