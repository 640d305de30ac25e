"""Where things lie in the bucket. Whatever is under none of these is foreign and never touched (rule 6)."""

from __future__ import annotations

PAYLOAD_PREFIX = "m/"
"""m/<subject>/<incarnation>/<upload id>"""
SYSTEM_PREFIX = "_mts/"
PACK_PREFIX = f"{SYSTEM_PREFIX}packs/"
"""<id>: an object of many small messages"""
CEILING_PREFIX = f"{SYSTEM_PREFIX}ceiling/"
"""<20 digits>: empty; up to the largest, sequences may be given"""
JOURNAL_PREFIX = f"{SYSTEM_PREFIX}journal/"
"""<number>-<after>-<upto>: a segment"""
BACKUP_PREFIX = f"{SYSTEM_PREFIX}backups/"
"""<id>/...: pieces of a snapshot, and the manifest"""
DELETION_PREFIX = f"{SYSTEM_PREFIX}deletions/"
"""<id>: the record of a deletion for good; never deleted by us"""
REPORT_PREFIX = f"{SYSTEM_PREFIX}fsck/"
"""<id>: the latest report of a check"""
