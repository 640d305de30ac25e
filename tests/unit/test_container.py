"""What a Lambda container keeps between calls, and when it opens it anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from minitoolstream import bootstrap
from minitoolstream.api.app import run
from minitoolstream.config import Settings, load_settings
from minitoolstream.container import LOOK_AGAIN, SECRETS_LIFE, Container
from minitoolstream.domain.errors import MtsError, unavailable
from minitoolstream.services.core import Core
from tests.core_kit import core_kit

ROLE = {
    "AWS_LAMBDA_FUNCTION_NAME": "mts-publish",
    "AWS_ACCESS_KEY_ID": "ASIA",
    "AWS_SECRET_ACCESS_KEY": "key",
    "AWS_SESSION_TOKEN": "token",
}


@dataclass
class Vault:
    """Stands for Secrets Manager; counts who asks."""

    secrets: dict[str, str] = field(default_factory=lambda: {"server.token": "one", "tarantool.password": "x"})
    reads: int = 0
    away: bool = False
    now: float = 1000.0
    environ: Mapping[str, str] = field(default_factory=lambda: {**ROLE, "MTS_AWS_SECRET": "mts"})

    async def read(self) -> dict[str, str]:
        self.reads += 1
        if self.away:
            raise unavailable("AWS does not answer")
        return dict(self.secrets)

    def settings(self) -> Settings:
        return load_settings({"MTS_HOME": "/nonexistent", **self.environ})


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Vault:
    made = Vault()
    monkeypatch.setattr(bootstrap, "open_secrets", lambda settings: made if settings["aws.secret"] else None)
    monkeypatch.setattr(bootstrap, "open_core", opened)
    return made


async def opened(settings: Settings) -> Core:
    """On fakes: what is kept is looked at, not what it can do."""
    core = core_kit().core
    core.settings = settings
    return core


@pytest.fixture
def container(vault: Vault) -> Iterator[Container]:
    made = Container(load=vault.settings, clock=lambda: vault.now)
    yield made
    if made._core is not None:
        run(made._core.close())


def token_of(container: Container) -> Any:
    return run(container.settings())["server.token"]


def test_the_core_is_opened_once(container: Container) -> None:
    first = run(container.core())
    assert run(container.core()) is first


def test_a_function_uses_the_keys_of_its_role(container: Container) -> None:
    settings = run(container.settings())
    found = [settings[f"minio.{name}"] for name in ("access_key", "secret_key", "session_token")]
    assert found == ["ASIA", "key", "token"]


def test_keys_for_aws_are_left_alone_outside_of_lambda() -> None:
    environ = {name: value for name, value in ROLE.items() if name != "AWS_LAMBDA_FUNCTION_NAME"}
    assert load_settings({"MTS_HOME": "/nonexistent", **environ})["minio.access_key"] is None


def test_without_a_secret_everything_comes_from_the_environment(vault: Vault, container: Container) -> None:
    vault.environ = {**ROLE, "MTS_TOKEN": "mine", "MTS_TARANTOOL_PASSWORD": "x"}
    assert token_of(container) == "mine"
    vault.now += 10 * SECRETS_LIFE
    assert (token_of(container), vault.reads) == ("mine", 0)


def test_secrets_are_read_again_after_a_minute(vault: Vault, container: Container) -> None:
    first = run(container.core())
    vault.secrets["server.token"] = "two"
    vault.now += SECRETS_LIFE - 1
    assert run(container.core()) is first
    vault.now += 1
    assert run(container.core()).settings["server.token"] == "two"
    assert vault.reads == 2


def test_secrets_that_did_not_change_leave_the_core_alone(vault: Vault, container: Container) -> None:
    first = run(container.core())
    vault.now += SECRETS_LIFE
    assert run(container.core()) is first
    assert vault.reads == 2


def test_secrets_that_cannot_be_read_again_stay(vault: Vault, container: Container) -> None:
    token_of(container)
    vault.away = True
    vault.now += SECRETS_LIFE
    assert token_of(container) == "one"


def test_a_rotated_secret_with_an_unknown_key_changes_nothing(
    vault: Vault, container: Container, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of it would be worse, and so would calls that fail: the log says what to mend."""
    first = token_of(container)
    vault.secrets |= {"server.token": "two", "server.port": "80"}
    for _ in range(3):
        vault.now += SECRETS_LIFE
        assert token_of(container) == first
    assert "server.port" in caplog.text
    del vault.secrets["server.port"]
    vault.now += SECRETS_LIFE
    assert token_of(container) == "two"


def test_a_secret_that_was_taken_away_is_gone(vault: Vault, container: Container) -> None:
    """As it is for a container that begins now."""
    assert token_of(container) == "one"
    del vault.secrets["server.token"]
    vault.now += SECRETS_LIFE
    assert token_of(container) is None


@pytest.mark.parametrize("commits", [True, False])
def test_the_ceiling_is_kept_by_who_commits_alone(container: Container, commits: bool) -> None:
    """Others have no right to it."""

    async def looked(core: Core) -> bool:
        return core.ceiling._looked

    assert run(container.use(looked, commits=commits)) is commits


def test_secrets_that_cannot_be_read_at_all_are_an_error(vault: Vault, container: Container) -> None:
    vault.away = True
    with pytest.raises(MtsError, match="does not answer"):
        token_of(container)


def refusing(token: str, code: str = "unauthorized") -> Callable[[Core], Awaitable[str]]:
    """Takes this token alone, as one who knows it is rotated by now."""

    async def action(core: Core) -> str:
        if core.settings["server.token"] != token:
            raise MtsError(code, "refused")
        return token

    return action


@pytest.mark.parametrize("code", ["unauthorized", "not_configured"])
def test_what_was_refused_is_tried_with_rotated_secrets(vault: Vault, container: Container, code: str) -> None:
    run(container.core())
    vault.secrets["server.token"] = "two"
    vault.now += LOOK_AGAIN
    assert run(container.use(refusing("two", code))) == "two"


def test_what_is_refused_again_and_again_does_not_ask_for_secrets_each_time(vault: Vault, container: Container) -> None:
    run(container.core())
    for _ in range(10):
        vault.now += LOOK_AGAIN / 5
        with pytest.raises(MtsError, match="refused"):
            run(container.use(refusing("never")))
    assert vault.reads == 3


def test_another_error_is_not_tried_again(vault: Vault, container: Container) -> None:
    run(container.core())
    vault.secrets["server.token"] = "two"
    vault.now += LOOK_AGAIN
    with pytest.raises(MtsError, match="refused"):
        run(container.use(refusing("two", "bad_request")))


def test_a_check_of_the_settings_alone_opens_no_core(vault: Vault, container: Container) -> None:
    def check(settings: Settings) -> str:
        if settings["server.token"] != "two":
            raise MtsError("unauthorized", "refused")
        return "in"

    with pytest.raises(MtsError, match="refused"):
        run(container.check(check))
    vault.secrets["server.token"] = "two"
    vault.now += LOOK_AGAIN
    assert run(container.check(check)) == "in"
    assert container._core is None


def test_a_secret_that_is_no_setting_is_named(vault: Vault, container: Container) -> None:
    vault.secrets["server.port"] = "80"
    with pytest.raises(MtsError, match=r"server\.port"):
        token_of(container)


def test_a_core_without_credentials_says_which_to_set() -> None:
    with pytest.raises(MtsError, match="MTS_TARANTOOL_PASSWORD"):
        run(bootstrap.open_core(load_settings({"MTS_HOME": "/nonexistent"})))
