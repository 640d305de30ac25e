"""What the services need of the outside, in the words of the domain. Adapters fulfil these."""

from minitoolstream.ports.audit import AuditStore, Lane, LanePage, Pointing, RowFacts, Summary, UploadFacts
from minitoolstream.ports.aws import EventLetters, SecretSource
from minitoolstream.ports.bucket import BucketStore
from minitoolstream.ports.catalog import CatalogStore, PeerStores
from minitoolstream.ports.deletion import DeletionStore, DeletionWork, RewritePlan
from minitoolstream.ports.delivery import DeliveryStore, DurablePage
from minitoolstream.ports.metadata import (
    WALK_AT_ONCE,
    Changes,
    Doomed,
    DueUploads,
    ExtentPage,
    GroupResults,
    MetadataStore,
    NewUpload,
    PackResult,
)
from minitoolstream.ports.metrics import Metrics, NoMetrics
from minitoolstream.ports.payloads import (
    BlockReader,
    GetRequest,
    ObjectAbout,
    ObjectInfo,
    PayloadStore,
    SignedRequest,
    Signer,
    StoredPart,
)
from minitoolstream.ports.recovery import JournalLag, JournalStep, JournalStore, Position, RestoreStore, Settled
from minitoolstream.ports.retention import RetentionStore
from minitoolstream.ports.shard_rows import ShardRows
from minitoolstream.ports.subjects import SubjectStore
from minitoolstream.ports.tracking import QueuePlace, TrackingStore
from minitoolstream.ports.transactions import TransactionStore

__all__ = [
    "WALK_AT_ONCE",
    "AuditStore",
    "BlockReader",
    "BucketStore",
    "CatalogStore",
    "Changes",
    "DeletionStore",
    "DeletionWork",
    "DeliveryStore",
    "Doomed",
    "DueUploads",
    "DurablePage",
    "EventLetters",
    "ExtentPage",
    "GetRequest",
    "GroupResults",
    "JournalLag",
    "JournalStep",
    "JournalStore",
    "Lane",
    "LanePage",
    "MetadataStore",
    "Metrics",
    "NewUpload",
    "NoMetrics",
    "ObjectAbout",
    "ObjectInfo",
    "PackResult",
    "PayloadStore",
    "PeerStores",
    "Pointing",
    "Position",
    "QueuePlace",
    "RestoreStore",
    "RetentionStore",
    "RewritePlan",
    "RowFacts",
    "SecretSource",
    "Settled",
    "ShardRows",
    "SignedRequest",
    "Signer",
    "StoredPart",
    "SubjectStore",
    "Summary",
    "TrackingStore",
    "TransactionStore",
    "UploadFacts",
]
