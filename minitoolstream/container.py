"""What a Lambda container keeps between calls: the settings with their secrets, and one core with its connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TypeVar

from minitoolstream import bootstrap
from minitoolstream.config import Settings, load_settings
from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.limits import KIB, MAX_ANSWER_BYTES
from minitoolstream.options import OPTIONS
from minitoolstream.services.core import Core

SECRETS_LIFE = 60.0
LOOK_AGAIN = 5.0
"""Seconds between two looks at the secrets while credentials are refused: who guesses must not make us ask so often."""
_TURNS = 3
"""Of the loop, before it is used: while no call ran, nobody heard that a peer had closed its connection."""
_AROUND_A_PAGE = 256 * KIB
_REFUSED = frozenset({"unauthorized", "not_configured"})
_SECRETS = frozenset(option.key for option in OPTIONS if option.secret)
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Container:
    """Opens everything on first use, and anew when secrets were rotated. Serves one call at a time, as Lambda does."""

    def __init__(
        self,
        core: Core | None = None,
        *,
        load: Callable[[], Settings] = load_settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._core = core
        self._settings = self._plain = core.settings if core else None
        self._load = load
        self._clock = clock  # of the wall: a frozen container's other clock may stand still
        self._secrets: Mapping[str, str] = {}
        self._read_at = -inf

    def plain_settings(self) -> Settings:
        """Perhaps without secrets: nobody is asked for them."""
        if self._plain is None:
            self._plain = self._load()
            logging.basicConfig()  # where Lambda has not done that
            logging.getLogger().setLevel(self._plain["logging.level"].upper())
        return self._plain

    async def settings(self) -> Settings:
        """With secrets that are not older than a minute."""
        return await self._refreshed(SECRETS_LIFE)

    async def core(self, *, commits: bool = False) -> Core:
        """`commits`: for a function that gives sequences, whose role may keep their ceiling."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        settings = await self.settings()
        if self._core is None or self._core.settings is not settings:
            old, self._core = self._core, await bootstrap.open_core(settings)
            if old is not None:
                await old.close()
            if commits:
                await self._core.ceiling.keep_if_possible()
        self._core.answer_bytes = MAX_ANSWER_BYTES - _AROUND_A_PAGE
        return self._core

    async def use(self, action: Callable[[Core], Awaitable[T]], *, commits: bool = False) -> T:
        """What the action gives; when credentials are refused, and others are there by now, it is tried with those."""
        core = await self.core(commits=commits)
        try:
            return await action(core)
        except MtsError as error:
            if error.code not in _REFUSED or await self._refreshed(LOOK_AGAIN) is core.settings:
                raise
        return await action(await self.core(commits=commits))

    async def check(self, action: Callable[[Settings], T]) -> T:
        """The same for what needs the settings alone."""
        settings = await self.settings()
        try:
            return action(settings)
        except MtsError as error:
            fresh = await self._refreshed(LOOK_AGAIN) if error.code in _REFUSED else settings
            if fresh is settings:
                raise
        return action(fresh)

    async def _refreshed(self, life: float) -> Settings:
        """The same object as long as nothing changed."""
        plain = self.plain_settings()
        source = bootstrap.open_secrets(plain)
        if self._settings is not None and (source is None or self._clock() - self._read_at < life):
            return self._settings
        try:
            secrets = await source.read() if source else {}
            if self._settings is None or secrets != self._secrets:
                self._settings, self._secrets = _with_secrets(plain, secrets), secrets
        except MtsError as error:
            if self._settings is None:
                raise
            _log.warning("the secrets stay as they are: %s", error.message)
        self._read_at = self._clock()
        return self._settings


def _with_secrets(settings: Settings, secrets: Mapping[str, str]) -> Settings:
    unknown = sorted(set(secrets) - _SECRETS)
    if unknown:
        raise MtsError("bad_config", f"{settings['aws.secret']} holds what is no secret of ours: {', '.join(unknown)}")
    return settings.with_values("Secrets Manager", **{key.replace(".", "__"): text for key, text in secrets.items()})


_container = Container()


def current() -> Container:
    """The process's own."""
    return _container
