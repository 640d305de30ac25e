"""Writes docs/configuration.md from the table of options; a test compares the two."""

from __future__ import annotations

import sys
from pathlib import Path

from minitoolstream.config import env_name
from minitoolstream.options import NO_EFFECT, OPTIONS

HEAD = """# Configuration

A value comes from the first of: the environment, `mts.yaml` in the current folder (or `MTS_CONFIG`), what `mts up`
remembered under `.mts/` (or `MTS_HOME`), the default. `mts config show` says where each came from. Secrets are never
read from `mts.yaml`.

Servers that `mts up` built or fetched are kept for all stacks of a user in `~/.cache/minitoolstream/` (or under
`XDG_CACHE_HOME`); `mts down --purge` leaves them there.

With a MinIO of your own (`minio.endpoint`), its user needs two statements that deny what MinIO would let in without a
valid signature: [decision 0009](decisions/0009-no-copies-through-a-ticket.md) has them. `mts up` gives them to the one
that it starts.

```yaml
server:
  port: 8080
  cors_origins: [https://app.example]
tarantool:
  wal_mode: fsync
minio:
  bucket: minitoolstream
ttl:
  default: 24h
  channels:
    - {channel: logs, duration: 7d}
logging:
  level: info
```

| key | environment | default | what |
|---|---|---|---|
"""


def shown(value: object) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return "`" + ",".join(map(str, value)) + "`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def page() -> str:
    rows = [
        f"| `{option.key}` | `{env_name(option.key)}` | {'secret' if option.secret else shown(option.default)} "
        f"| {option.about} |"
        for option in OPTIONS
    ]
    later = "\n".join(f"- `{key}`: {reason}" for key, reason in NO_EFFECT.items())
    return (
        HEAD
        + "\n".join(rows)
        + "\n\nDurations are `500ms`, `30s`, `15m`, `24h`, `7d` or seconds; sizes `512KiB`, `16MiB` or bytes.\n\n"
        + "Keys of the specification that are read but have no effect:\n\n"
        + later
        + "\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/configuration.md").write_text(page(), "utf-8")
