"""Which object store: the configured one, MinIO or the embedded emulator; and what the host needs of it."""

from __future__ import annotations

from dataclasses import dataclass

from minitoolstream.config import Settings, env_name
from minitoolstream.domain.errors import MtsError
from minitoolstream.stack import bucket as buckets
from minitoolstream.stack import minio, ministack
from minitoolstream.stack.commands import Update
from minitoolstream.stack.credentials import Secrets, save_secrets
from minitoolstream.stack.get_minio import get_minio
from minitoolstream.stack.minio import Credentials, Webhook
from minitoolstream.stack.places import Place, given
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from minitoolstream.stack.state import OBJECT_STORE, State, log_file

MEANING = {
    "minio": "MinIO: a real object store, data on disk",
    "ministack": "ministack: an embedded emulator, for trying out, not for data you want to keep",
    "external": "your object store: used, not started",
}


@dataclass(frozen=True, slots=True)
class Choice:
    kind: str
    program: Program
    remark: str = ""


def choose(settings: Settings, state: State, *, quick: bool, update: Update) -> Choice:
    """In this order: what holds this stack's data already, what was asked for, MinIO, the emulator."""
    kept = state.settings.get("object_store.kind")
    asked = "ministack" if quick else settings["object_store.kind"]
    if kept and asked not in {"auto", kept}:
        if not quick:
            raise MtsError(
                "bad_config",
                f"the messages under {settings.home} are stored in {kept}, but {asked} was asked for",
                {"hint": "`mts down --purge` deletes them; MTS_HOME names another folder"},
            )
        return Choice(kept, _get(kept, update), f"--quick has no effect: this stack's data is in {kept}")
    wanted = kept or asked
    if wanted == "ministack":
        return Choice(wanted, _get(wanted, update))
    try:
        return Choice("minio", _get("minio", update))
    except MtsError as error:
        if wanted == "minio":
            at_once = "" if kept else "`mts up --quick` takes the embedded emulator; or "
            error.details["hint"] = f"{at_once}put `minio` on PATH, or name a store of yours: MTS_MINIO_ENDPOINT"
            raise
        why = f"{error.message}; more in {error.details['log']}" if "log" in error.details else error.message
        remark = f"MinIO could not be got ({why}); it stays with the emulator until `mts down --purge`"
        return Choice("ministack", _get("ministack", update), remark)


def check_bucket(settings: Settings, state: State) -> None:
    """A store of ours keeps its bucket: in another one, the host would not find what it has."""
    bucket = settings["minio.bucket"]
    if state.bucket not in {"", bucket}:
        raise MtsError(
            "bad_config",
            f"the messages under {settings.home} are in the bucket {state.bucket}, but minio.bucket is {bucket} "
            f"({settings.source('minio.bucket')})",
            {"hint": f"set minio.bucket to {state.bucket} again; or `mts down --purge` deletes the messages"},
        )


def _get(kind: str, update: Update) -> Program:
    return get_minio(update=update) if kind == "minio" else ministack.get_ministack(update=update)


def launch(choice: Choice, settings: Settings, secrets: Secrets, place: Place, webhook_url: str) -> Launch:
    root = Credentials(**secrets.store_root)
    data, log = settings.home / "data" / choice.kind, log_file(settings.home, OBJECT_STORE)
    if choice.kind == "ministack":
        return ministack.launch(
            choice.program,
            port=place.port,
            data=data,
            log=log,
            root=root,
            region=settings["minio.region"],
            host=place.host,
        )
    return minio.launch(
        choice.program,
        port=place.port,
        data=data,
        log=log,
        root=root,
        webhook=Webhook(webhook_url, settings.secret("server.webhook_token")),
        host=place.host,
        region=settings["minio.region"],
        cors_origins=settings["minio.cors_origins"],
    )


def is_ready(kind: str, endpoint: str) -> bool:
    return minio.is_ready(endpoint) if kind == "minio" else ministack.is_ready(endpoint)


def prepare(kind: str, settings: Settings, secrets: Secrets, endpoint: str) -> str | None:
    """Bucket, events and the host's user on a store we started; the URL of the event queue, if any."""
    root, region, bucket = (
        Credentials(**secrets.store_root),
        settings["minio.region"],
        settings["minio.bucket"],
    )
    s3 = buckets.client("s3", endpoint, root, region)
    buckets.ensure_bucket(s3, bucket)
    user = Credentials(settings.secret("minio.access_key"), settings.secret("minio.secret_key"))
    if kind == "minio":
        buckets.notify_webhook(s3, bucket, region)
        minio.ensure_user(endpoint, root, user, bucket)
        return None
    buckets.allow_browsers(s3, bucket, settings["minio.cors_origins"])
    url, arn = buckets.notify_queue(s3, buckets.client("sqs", endpoint, root, region), bucket)
    if not ministack.takes(endpoint, user, bucket, region):
        if given(settings, "minio.access_key"):
            raise MtsError("bad_config", "ministack chooses its own keys: unset MTS_MINIO_ACCESS_KEY")
        user = ministack.new_user(endpoint, root, bucket, arn, region)
        secrets.settings |= {"minio.access_key": user.access_key, "minio.secret_key": user.secret_key}
        save_secrets(settings.home, secrets)
    return url


def prepare_external(settings: Settings, endpoint: str, webhook_url: str) -> str:
    """Bucket and events on the user's store; returns a remark when events cannot be set up from here."""
    for key in ("minio.access_key", "minio.secret_key"):
        if not given(settings, key):
            hint = f"or unset minio.endpoint ({settings.source('minio.endpoint')}), and `mts up` starts a store"
            raise MtsError(
                "bad_config", f"the object store at {endpoint} is yours: set {env_name(key)}", {"hint": hint}
            )
    user = Credentials(settings["minio.access_key"], settings["minio.secret_key"])
    s3 = buckets.client("s3", endpoint, user, settings["minio.region"])
    buckets.ensure_bucket(s3, settings["minio.bucket"])
    if settings["object_store.queue_url"]:
        return ""
    try:
        buckets.notify_webhook(s3, settings["minio.bucket"], settings["minio.region"])
    except MtsError:
        return (
            f"its events do not reach the host; give MinIO the webhook {minio.WEBHOOK_ID} with the address "
            f"{webhook_url} and the token server.webhook_token, or set object_store.queue_url. "
            "Until then, uploads are committed when a client asks for them, or by the reconciler."
        )
    return ""
