"""How long URLs live: as long as they are meant to, but not longer than the keys that sign them (rule 7)."""

from __future__ import annotations

import time
from dataclasses import replace

from minitoolstream.domain.errors import unavailable
from minitoolstream.domain.upload import Upload
from minitoolstream.services.core import Core


def within_session(core: Core, upload: Upload) -> Upload:
    """The upload as its ticket may tell of it. Its row stays: what comes in time is committed."""
    end = _session_end(core)
    return upload if end is None or upload.expires_at <= end else replace(upload, expires_at=end)


def download_life(core: Core) -> int:
    """Seconds that a URL of a payload lives."""
    end, life = _session_end(core), int(core.settings["downloads.url_life"])
    return life if end is None else min(life, end - int(time.time()))


def _session_end(core: Core) -> int | None:
    end: float | None = core.settings["minio.session_end"]
    if end is None:
        return None
    if end - time.time() < 1:
        raise unavailable("the keys that sign URLs have ended: nothing they sign would open")
    return int(end)
