"""Settings: which source wins, where a value came from, and what is refused."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from minitoolstream.config import (
    Settings,
    env_name,
    find_home,
    load_settings,
    user_cache_dir,
    user_state_dir,
)
from minitoolstream.domain.errors import MtsError
from minitoolstream.options import OPTIONS
from minitoolstream.setting_values import duration, size


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".mts").mkdir()
    return tmp_path


def load(folder: Path, yaml: str | None = None, remembered: dict[str, Any] | None = None, **environ: str) -> Settings:
    if yaml is not None:
        (folder / "mts.yaml").write_text(yaml)
    if remembered is not None:
        (folder / ".mts" / "state.json").write_text(json.dumps({"settings": remembered}))
    return load_settings(environ, cwd=folder)


def refusal(folder: Path, yaml: str | None = None, **environ: str) -> str:
    with pytest.raises(MtsError) as caught:
        load(folder, yaml, None, **environ)
    assert caught.value.code == "bad_config"
    return caught.value.message


@pytest.mark.parametrize("token", ["x\r", "x\ny", "x\x1b", "x\udcff"])
def test_a_token_that_no_header_can_carry_is_refused_by_the_name_of_its_variable(folder: Path, token: str) -> None:
    message = refusal(folder, MTS_TOKEN=token)
    assert "MTS_TOKEN" in message
    assert message.isprintable()
    assert token not in message


def test_without_any_source_every_value_is_the_default(tmp_path: Path) -> None:
    settings = load_settings({}, cwd=tmp_path)
    for option in OPTIONS:
        assert settings[option.key] == option.default
        assert settings.source(option.key) == "default"
    assert settings.home == tmp_path / ".mts"
    assert settings.warnings == ()


def test_the_environment_wins_over_the_file_and_the_file_over_what_was_remembered(folder: Path) -> None:
    remembered = {"server.port": 1, "server.host": "a", "server.workers": 7}
    settings = load(folder, "server: {port: 2, host: b}", remembered, MTS_SERVER_PORT="3")
    assert [settings[key] for key in ("server.port", "server.host", "server.workers")] == [3, "b", 7]
    assert settings.source("server.port") == "MTS_SERVER_PORT"
    assert settings.source("server.host") == str(folder / "mts.yaml")
    assert settings.source("server.workers") == str(folder / ".mts")


def test_an_empty_variable_is_as_good_as_none(folder: Path) -> None:
    assert load(folder, "server: {port: 2}", MTS_SERVER_PORT="").source("server.port").endswith("mts.yaml")


def test_short_names_of_variables_win_over_the_long_ones(folder: Path) -> None:
    settings = load(folder, MTS_TOKEN="short", MTS_SERVER_TOKEN="long")
    assert (settings["server.token"], settings.source("server.token")) == ("short", "MTS_TOKEN")
    assert load(folder, MTS_SERVER_TOKEN="long")["server.token"] == "long"
    assert env_name("server.token") == "MTS_TOKEN"
    assert env_name("server.port") == "MTS_SERVER_PORT"


def test_secrets_come_from_the_environment_or_the_stacks_own_file(folder: Path) -> None:
    (folder / ".mts" / "secrets.json").write_text(json.dumps({"settings": {"tarantool.password": "s"}}))
    assert load(folder).secret("tarantool.password") == "s"
    with pytest.raises(MtsError, match="MTS_MINIO_SECRET_KEY") as caught:
        load(folder).secret("minio.secret_key")
    assert caught.value.code == "not_configured"


@pytest.mark.parametrize("owner", ["api", "-", "a b", "x" * 101])
def test_an_owner_of_pins_cannot_be_named_as_one_who_may_more(folder: Path, owner: str) -> None:
    """`api` is whoever has the host's token, `-` what only messages hold."""
    with pytest.raises(MtsError, match="cannot be the name of an owner"):
        load_settings({"MTS_CATALOG_TOKENS": f"alice=one,{owner}=two"}, cwd=folder)


@pytest.mark.parametrize("key", [option.key for option in OPTIONS if option.secret])
def test_a_secret_in_the_file_is_refused(folder: Path, key: str) -> None:
    section, name = key.split(".")
    message = refusal(folder, f"{section}: {{{name}: hidden}}")
    assert f"`{key}` is a secret" in message
    assert env_name(key) in message
    assert "hidden" not in message


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("server: {prot: 1}", "unknown key `server.prot`"),
        ("sever: {port: 1}", "unknown key `sever.port`"),
        ("port: 1", "unknown key `port`"),
        ("- 1", "must be a map"),
        ("a: [", "is not YAML"),
        ("server: {port: x}", "server.port"),
        ("server: {port: true}", "server.port"),
        ("server: {inline_limit: 4XB}", "server.inline_limit"),
        ("uploads: {ticket_life: soon}", "uploads.ticket_life"),
        ("minio: {use_ssl: maybe}", "minio.use_ssl"),
    ],
)
def test_a_wrong_file_is_refused_by_key_and_file(folder: Path, yaml: str, words: str) -> None:
    message = refusal(folder, yaml)
    assert words in message
    assert str(folder / "mts.yaml") in message


@pytest.mark.parametrize(
    ("yaml", "near"),
    [
        ("server: {prot: 1}", "`server.port`"),
        ("sever: {port: 1}", "`server.port`"),
        ("bucket: b", "`minio.bucket`"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(folder: Path, yaml: str, near: str) -> None:
    assert f"did you mean {near}?" in refusal(folder, yaml)


def test_who_must_go_on_gets_what_is_right_and_is_told_what_is_wrong(folder: Path) -> None:
    (folder / "mts.yaml").write_text("server: {prot: 1, workers: 3, port: x}")
    settings = load_settings({}, cwd=folder, go_on=True)
    assert settings["server.workers"] == 3
    assert settings.source("server.port") == "default"
    unknown, wrong = settings.problems
    assert "server.prot" in unknown
    assert "server.port (from" in wrong


def test_a_stack_of_another_user_is_refused_before_anything_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".mts" / "state.json").write_text("{")
    monkeypatch.setattr("os.getuid", lambda: (folder / ".mts").stat().st_uid + 1)
    with pytest.raises(MtsError, match="belongs to") as caught:
        load_settings({}, cwd=folder)
    assert caught.value.code == "no_permission"
    assert "MTS_HOME" in caught.value.details["hint"]
    assert find_home({"MTS_HOME": "new"}, cwd=folder) == folder / "new"


@pytest.mark.parametrize("name", [".mts/state.json", "mts.yaml"])
def test_a_file_that_may_not_be_read_is_a_clear_error(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(path: Path, *arguments: Any, **_options: Any) -> Any:
        if path == folder / name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        raise FileNotFoundError(errno.ENOENT, "none", str(path))

    # Not by a file mode: root may read everything.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(MtsError, match="Permission denied") as caught:
        load_settings({}, cwd=folder)
    assert caught.value.code == "no_permission"


def test_a_file_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "mts.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not YAML" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("MTS_SERVER_PORT", "http", "server.port"),
        ("MTS_SERVER_WORKERS", "2.5", "server.workers"),
        ("MTS_UPLOADS_PUT_GRACE", "-5s", "uploads.put_grace"),
        ("MTS_UPLOADS_PART_SIZE", "16 monkeys", "uploads.part_size"),
        ("MTS_MINIO_USE_SSL", "2", "minio.use_ssl"),
        ("MTS_SERVER_PORT", "65536", "server.port"),
        ("MTS_SERVER_WORKERS", "-1", "server.workers"),
        ("MTS_UPLOADS_PART_SIZE", "4MiB", "uploads.part_size"),
        ("MTS_UPLOADS_PART_SIZE", "6GiB", "uploads.part_size"),
        ("MTS_TARANTOOL_WAL_MODE", "none", "tarantool.wal_mode"),
        ("MTS_LOGGING_LEVEL", "loud", "logging.level"),
        ("MTS_TARANTOOL_MEMORY", "1KiB", "tarantool.memory"),
        ("MTS_TARANTOOL_ADDRESS", "127.0.0.1:99999", "tarantool.address"),
        ("MTS_TARANTOOL_ADDRESS", "tcp://db:3301", "tarantool.address"),
        ("MTS_TARANTOOL_TIMEOUT", "0", "tarantool.timeout"),
        ("MTS_MINIO_ENDPOINT", "http://:9000", "minio.endpoint"),
        ("MTS_MINIO_ENDPOINT", "s3://store", "minio.endpoint"),
        ("MTS_MINIO_ENDPOINT", "http://store:port", "minio.endpoint"),
        ("MTS_MINIO_PUBLIC_ENDPOINT", "https://store/prefix", "minio.public_endpoint"),
        ("MTS_MINIO_REGION", "us east", "minio.region"),
        ("MTS_SERVER_INLINE_LIMIT", "0", "server.inline_limit"),
        ("MTS_UPLOADS_TICKET_LIFE", "8d", "uploads.ticket_life"),
        ("MTS_PACKS_GRACE", "0s", "packs.grace"),
        ("MTS_RECONCILE_INTERVAL", "0", "reconcile.interval"),
    ],
)
def test_a_wrong_variable_is_refused_by_key_and_name(folder: Path, name: str, value: str, key: str) -> None:
    message = refusal(folder, **{name: value})
    assert message.startswith(f"{key} (from {name}): ")
    assert repr(value) in message


def test_a_bound_is_told_as_a_user_writes_it(folder: Path) -> None:
    assert refusal(folder, MTS_TARANTOOL_MEMORY="1KiB").endswith("'1KiB' is not between 32MiB and 1TiB")


@pytest.mark.parametrize(
    "name", ["ab", "a" * 64, "Big", "a_b", "-ab", "ab-", "a..b", "10.0.0.1", "a b", "a/b", "bücket"]
)
def test_a_bucket_that_no_store_would_take_is_refused(folder: Path, name: str) -> None:
    assert "is no name for a bucket: 3 to 63 of" in refusal(folder, MTS_MINIO_BUCKET=name)


@pytest.mark.parametrize("name", ["abc", "a" * 63, "my-bucket.of.2026", "10.0.0"])
def test_a_bucket_that_stores_take_is_taken(folder: Path, name: str) -> None:
    assert load(folder, MTS_MINIO_BUCKET=name)["minio.bucket"] == name


@pytest.mark.parametrize("text", ["store", "store:9000", "[::1]:9000", "http://store", "https://10.0.0.1:443/"])
def test_endpoints_with_and_without_a_scheme(folder: Path, text: str) -> None:
    assert load(folder, MTS_MINIO_ENDPOINT=text)["minio.endpoint"] == text


def test_sections_of_the_specification_that_have_no_effect_yet_are_said(folder: Path) -> None:
    settings = load(folder, "vault: {default: 24h}\nsubscription: {max_wait_time: 30s}\nserver: {port: 5}")
    assert settings["server.port"] == 5
    assert [warning for warning in settings.warnings if "`vault` has no effect" in warning]
    assert len(settings.warnings) == 2


def test_the_servers_settings_of_the_specification_are_those_of_grpc(folder: Path) -> None:
    settings = load(
        folder,
        "server: {grpc: {max_concurrent_streams: 50, max_connection_idle: 5m, keepalive: 30s}}\n"
        "subscription: {check_interval: 2s, batch_size: 7}",
    )
    assert settings["grpc.max_concurrent_streams"] == 50
    assert settings["grpc.max_connection_idle"] == 300
    assert (settings["subscription.check_interval"], settings["subscription.batch_size"]) == (2, 7)
    with pytest.raises(MtsError, match=r"unknown key `grpc\.nothing`"):
        load(folder, "server: {grpc: {nothing: 1}}")


def test_the_time_of_messages_is_read_as_the_specification_writes_it(folder: Path) -> None:
    settings = load(
        folder, "ttl: {default: 48h, channels: [{channel: logs, duration: 7d}, {channel: e.v, duration: 1y}]}"
    )
    assert (settings["ttl.enabled"], settings["ttl.default"]) == (True, 172800)
    assert settings["ttl.channels"] == (("logs", 604800), ("e.v", 31536000))
    assert load(folder, MTS_TTL_CHANNELS="logs=7d, metrics=30d")["ttl.channels"][1] == ("metrics", 2592000)
    assert ",".join(map(str, settings["ttl.channels"])) == "logs=604800s,e.v=31536000s"


@pytest.mark.parametrize(
    "text",
    [
        "{default: 0s}",
        "{default: 11y}",
        "{channels: [{channel: logs}]}",
        "{channels: [logs=0s]}",
        "{channels: ['=1d']}",
        "{channels: [a=1d, a=2d]}",
        "{channels: [{channel: a/b, duration: 1d}]}",
        "{check_interval: 0s}",
    ],
)
def test_a_time_that_messages_cannot_have_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(MtsError, match="ttl"):
        load(folder, f"ttl: {text}")


def test_an_empty_file_is_as_good_as_none(folder: Path) -> None:
    assert load(folder, "")["server.port"] == 0


def test_a_named_file_must_exist(folder: Path) -> None:
    missing = folder / "other.yaml"
    assert "does not exist" in refusal(folder, MTS_CONFIG=str(missing))
    with pytest.raises(MtsError, match="does not exist"):
        load_settings({}, cwd=folder, config_file=missing)
    missing.write_text("server: {port: 9}")
    assert load(folder, MTS_CONFIG=str(missing))["server.port"] == 9
    assert load_settings({}, cwd=folder, config_file=missing)["server.port"] == 9


@pytest.mark.parametrize("content", ["{", "[]", "null"])
def test_a_damaged_file_of_the_stack_says_what_to_do(folder: Path, content: str) -> None:
    (folder / ".mts" / "state.json").write_text(content)
    assert "is damaged" in refusal(folder)


def test_the_stacks_home_is_found_from_below_it(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    assert load_settings({}, cwd=below).home == folder / ".mts"
    assert load_settings({"MTS_HOME": "/elsewhere"}, cwd=below).home == Path("/elsewhere")
    assert load_settings({"MTS_HOME": "near"}, cwd=below).home == below / "near"


def test_lists_come_as_words_or_as_yaml(folder: Path) -> None:
    assert load(folder, MTS_URL="http://a, http://b,")["server.urls"] == ("http://a", "http://b")
    assert load(folder, "server: {urls: [http://c]}")["server.urls"] == ("http://c",)


def test_a_copy_with_other_values_says_so() -> None:
    settings = load_settings({}, cwd=Path("/nonexistent"))
    changed = settings.with_values(server__port="7", minio__access_key=None)
    assert (changed["server.port"], changed.source("server.port"), settings["server.port"]) == (7, "given", 0)
    assert changed["minio.access_key"] is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("15m", 900),
        ("24h", 86400),
        ("7d", 604800),
        ("1w", 604800),
        ("500ms", 0.5),
        (90, 90),
        ("1.5 h", 5400),
    ],
)
def test_durations(text: Any, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"), [("16MiB", 2**24), ("5GB", 5 * 10**9), ("1kib", 1024), (17, 17), ("3 B", 3), ("1TiB", 2**40)]
)
def test_sizes(text: Any, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5.2s", "1 fortnight", None, True])
def test_what_is_neither_is_refused_with_an_example(text: Any) -> None:
    with pytest.raises(ValueError, match="write 30s"):
        duration(text)
    with pytest.raises(ValueError, match="write 512KiB"):
        size(text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("ON", True), ("1", True), ("no", False), ("off", False)])
def test_booleans(folder: Path, text: str, value: bool) -> None:
    assert load(folder, MTS_MINIO_USE_SSL=text)["minio.use_ssl"] is value


def test_unfinished_uploads_are_remembered_for_the_user_not_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_state_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/minitoolstream")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/someone"))
    assert user_state_dir({}) == Path("/home/someone/.local/state/minitoolstream")


def test_servers_are_kept_for_the_user_not_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_cache_dir({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/minitoolstream")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/someone"))
    assert user_cache_dir({}) == Path("/home/someone/.cache/minitoolstream")


def test_every_option_says_what_it_is_for() -> None:
    assert all(option.about for option in OPTIONS)
    assert len({name for option in OPTIONS for name in option.names}) == sum(len(option.names) for option in OPTIONS)


def test_the_end_of_a_roles_keys_is_known_where_it_is_told(tmp_path: Path) -> None:
    environ = {"MTS_HOME": str(tmp_path), "AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"}
    assert load_settings(environ, cwd=tmp_path)["minio.session_end"] is None, (
        "those keys may be meant for something else"
    )
    on_lambda = load_settings({**environ, "AWS_LAMBDA_FUNCTION_NAME": "f"}, cwd=tmp_path)
    assert on_lambda["minio.session_end"] == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    with pytest.raises(MtsError, match="is not a time; write 2026-01-31T12:00:00Z"):
        load_settings({"MTS_HOME": str(tmp_path), "MTS_MINIO_SESSION_END": "tomorrow"}, cwd=tmp_path)
