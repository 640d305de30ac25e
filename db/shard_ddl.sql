-- Where mysql-sender puts a file's rows, in each shard's own database (MariaDB 10.6 or newer, MySQL 8.0 or newer).
-- `item` counts the rows of a file and shard from 0; `value` is the row as its function gave it.
CREATE TABLE IF NOT EXISTS pipeline_result (
  filename VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  shard INT UNSIGNED NOT NULL,
  item INT UNSIGNED NOT NULL,
  item_key TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (JSON_VALID(value)),
  PRIMARY KEY (filename, shard, item),
  KEY by_key (item_key(100))
) ENGINE = InnoDB
