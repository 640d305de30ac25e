"""A stack with short lives, so that expiry and graces can be waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import Live, start_live
from tests.servers import UNMEASURED

SHORT_LIVES = {
    "MTS_UPLOADS_TICKET_LIFE": "4s",
    "MTS_UPLOADS_PRODUCER_TICKET_LIFE": "60s",
    "MTS_UPLOADS_PUT_GRACE": "1s",
    "MTS_UPLOADS_FIRST_LOOK": "1s",
    "MTS_PACKS_GRACE": "6s",
}


@pytest.fixture(scope="package", autouse=True)
def unmeasured_children() -> Iterator[None]:
    """Hundreds of processes start here, most of them to be killed: what they run is measured where others run it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in UNMEASURED.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def deaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Every notification of the store is lost. Shared: use subjects of your own, stop nothing."""
    stack = start_live(tmp_path_factory.mktemp("deaf"), webhook=False, extra_env=SHORT_LIVES)
    yield stack
    stack.stop()
