"""The few XML documents of S3 that we read and write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from urllib.parse import unquote_plus

# Documents come from our own object store only, and expat (2.4.1 on) refuses entity bombs; saxutils only escapes.
from xml.etree import ElementTree  # nosec B405
from xml.sax.saxutils import escape  # nosec B406

from minitoolstream.domain.errors import unavailable
from minitoolstream.domain.lifecycle import LifecycleRule
from minitoolstream.ports import ObjectInfo, StoredPart

_NOT_XML = (ElementTree.ParseError, ValueError, LookupError)
"""Also encodings that nobody knows."""
_CODE = re.compile(r"[A-Za-z0-9]{1,64}")
_NUMBER = re.compile(r"[0-9]{1,18}")


class Document:
    """An answer of the store, read without regard to its namespace."""

    def __init__(self, element: ElementTree.Element) -> None:
        self._element = element

    @classmethod
    def parse(cls, body: bytes) -> Document:
        try:
            return cls(ElementTree.fromstring(body))  # noqa: S314  # nosec B314
        except _NOT_XML:
            raise unavailable("the object store answered something that is not XML") from None

    @property
    def name(self) -> str:
        return _local(self._element)

    def text(self, name: str) -> str:
        for child in self._element:
            if _local(child) == name:
                return child.text or ""
        return ""

    def all(self, name: str) -> Iterator[Document]:
        return (Document(child) for child in self._element if _local(child) == name)

    def plain(self) -> bytes:
        """The element as XML again, without namespaces."""
        copy = deepcopy(self._element)
        for element in copy.iter():
            element.tag = _local(element)
        copy.tail = None
        return bytes(ElementTree.tostring(copy))

    @property
    def truncated(self) -> bool:
        return self.text("IsTruncated") == "true"


def error_code(body: bytes) -> str:
    """S3's code of an error. Never its message: that repeats the signature and what was signed."""
    try:
        document = Document(ElementTree.fromstring(body))  # noqa: S314  # nosec B314
    except _NOT_XML:
        return ""
    code = document.text("Code") if document.name == "Error" else ""
    return code if _CODE.fullmatch(code) else ""


def objects(document: Document) -> list[ObjectInfo]:
    """Of a ListBucketResult asked for with `encoding-type=url`."""
    url_encoded = document.text("EncodingType") == "url"
    return [
        ObjectInfo(
            unquote_plus(entry.text("Key")) if url_encoded else entry.text("Key"),
            _number(entry, "Size"),
            _etag(entry),
        )
        for entry in document.all("Contents")
    ]


def multipart_ids(document: Document, name: str) -> list[str]:
    """Of a ListMultipartUploadsResult: those of exactly this key."""
    return [entry.text("UploadId") for entry in document.all("Upload") if entry.text("Key") == name]


def parts(document: Document) -> list[StoredPart]:
    """Of a ListPartsResult."""
    return [
        StoredPart(_number(entry, "PartNumber"), _number(entry, "Size"), _etag(entry)) for entry in document.all("Part")
    ]


def delete_request(names: Sequence[str]) -> bytes:
    keys = "".join(f"<Object><Key>{escape(name)}</Key></Object>" for name in names)
    return f"<Delete>{keys}<Quiet>false</Quiet></Delete>".encode()


def deleted_names(document: Document) -> list[str]:
    """Of a DeleteResult: what is gone, also because it was never there."""
    gone = [entry.text("Key") for entry in document.all("Deleted")]
    gone += [entry.text("Key") for entry in document.all("Error") if entry.text("Code") == "NoSuchKey"]
    return gone


def complete_request(stored: Sequence[StoredPart]) -> bytes:
    entries = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>&quot;{escape(part.etag)}&quot;</ETag></Part>"
        for part in stored
    )
    return f"<CompleteMultipartUpload>{entries}</CompleteMultipartUpload>".encode()


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _number(entry: Document, name: str) -> int:
    text = entry.text(name)
    if not is_number(text):
        raise unavailable(f"the object store told no number as {name}")
    return int(text)


def _etag(entry: Document) -> str:
    return entry.text("ETag").strip('"')


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def lifecycle_rules(body: bytes) -> list[LifecycleRule]:
    """Of a LifecycleConfiguration."""
    return [_lifecycle_rule(rule) for rule in Document.parse(body).all("Rule")]


def _lifecycle_rule(rule: Document) -> LifecycleRule:
    expiration, noncurrent, abort = (
        _first(rule, name) for name in ("Expiration", "NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload")
    )
    return LifecycleRule(
        id=rule.text("ID"),
        prefix=_prefix(rule),
        abort_after_days=_days(abort, "DaysAfterInitiation"),
        noncurrent_days=_days(noncurrent, "NoncurrentDays"),
        removes_markers=expiration is not None and expiration.text("ExpiredObjectDeleteMarker") == "true",
        expires_current=expiration is not None and bool(expiration.text("Days") or expiration.text("Date")),
        enabled=rule.text("Status") == "Enabled",
        raw=rule.plain(),
    )


def lifecycle_request(rules: Sequence[LifecycleRule]) -> bytes:
    """Ours are written anew, those of others as they were read."""
    written = b"".join(rule.raw if rule.raw and not rule.ours else _rule_request(rule) for rule in rules)
    return b"<LifecycleConfiguration>" + written + b"</LifecycleConfiguration>"


def _rule_request(rule: LifecycleRule) -> bytes:
    actions = ""
    if rule.removes_markers:
        actions += "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
    if rule.noncurrent_days is not None:
        days = f"<NoncurrentDays>{rule.noncurrent_days}</NoncurrentDays>"
        actions += f"<NoncurrentVersionExpiration>{days}</NoncurrentVersionExpiration>"
    if rule.abort_after_days is not None:
        days = f"<DaysAfterInitiation>{rule.abort_after_days}</DaysAfterInitiation>"
        actions += f"<AbortIncompleteMultipartUpload>{days}</AbortIncompleteMultipartUpload>"
    status = "Enabled" if rule.enabled else "Disabled"
    head = f"<ID>{escape(rule.id)}</ID><Filter><Prefix>{escape(rule.prefix)}</Prefix></Filter><Status>{status}</Status>"
    return f"<Rule>{head}{actions}</Rule>".encode()


def _prefix(rule: Document) -> str:
    """A rule's prefix stands in its filter, alone or beside tags; in the oldest form, in the rule itself."""
    found = _first(rule, "Filter") or rule
    return (_first(found, "And") or found).text("Prefix")


def _first(document: Document, name: str) -> Document | None:
    return next(document.all(name), None)


def _days(document: Document | None, name: str) -> int | None:
    text = document.text(name) if document is not None else ""
    return int(text) if text.isdigit() else None
