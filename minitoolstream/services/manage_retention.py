"""How long messages stay, for all subjects that set nothing themselves; and who holds back what."""

from __future__ import annotations

import math
from typing import Any

from minitoolstream.config import Settings
from minitoolstream.domain.retention import Retention
from minitoolstream.services.core import Core

_KEYS = ("ttl.enabled", "ttl.default", "ttl.channels", "ttl.check_interval")
_GRACE_KEYS = ("downloads.url_life", "backup.interval")


async def get_retention(core: Core) -> Retention:
    return await core.retention.status()


async def configure_retention(core: Core, changes: dict[str, Any]) -> Retention:
    """What is not named stays. It holds until `mts.yaml` or the environment of a host says something new."""
    await core.retention.configure(changes)
    return await core.retention.status()


async def apply_settings(core: Core) -> bool:
    """What this host's settings say; see `RetentionStore.apply`."""
    settings = core.settings
    config = {
        "enabled": settings["ttl.enabled"],
        "default_ttl": math.ceil(settings["ttl.default"]),
        "check_interval": settings["ttl.check_interval"],
        "channels": {one.channel: math.ceil(one.seconds) for one in settings["ttl.channels"]},
    }
    given = any(settings.source(key) != "default" for key in _KEYS)
    return await core.retention.apply(config, trash_grace(settings), given=given)


def trash_grace(settings: Settings) -> int:
    """Seconds by which a payload outlives its message (rule 25): as long as a URL may be in use, and as a backup that
    knows the message may be the newest one."""
    if settings["trash.grace"] is not None:
        return math.ceil(float(settings["trash.grace"]))
    return math.ceil(max(float(settings[key]) for key in _GRACE_KEYS if key in settings.values))
