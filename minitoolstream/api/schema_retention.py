"""The shapes of retention on the wire: the domain's own."""

from __future__ import annotations

from minitoolstream.domain.lifecycle import LifecycleAnswer as LifecycleAnswer  # noqa: PLC0414 - part of the wire shapes
from minitoolstream.domain.lifecycle import Rule as Rule  # noqa: PLC0414
from minitoolstream.domain.retention import Retention as Retention  # noqa: PLC0414
from minitoolstream.domain.retention import Swept as Swept  # noqa: PLC0414
from minitoolstream.domain.retention import TtlChanges as TtlChanges  # noqa: PLC0414
