"""Secrets of our settings that Secrets Manager keeps."""

from __future__ import annotations

import msgspec

from minitoolstream.adapters.aws.calls import SECRETS_MANAGER, AwsCalls
from minitoolstream.domain.errors import MtsError


class ManagedSecrets:
    """Fulfils `ports.SecretSource`: a JSON map of settings' keys in one secret, so that they change together."""

    def __init__(self, calls: AwsCalls, secret: str) -> None:
        self._calls = calls
        self._secret = secret

    async def read(self) -> dict[str, str]:
        try:
            answer = await self._calls.call(SECRETS_MANAGER, "GetSecretValue", {"SecretId": self._secret})
        finally:
            await self._calls.close()
        try:
            return msgspec.json.decode(answer["SecretString"], type=dict[str, str])
        except (msgspec.DecodeError, KeyError, TypeError):
            raise MtsError("bad_config", f"the secret {self._secret} must be a JSON map of text to text") from None
