"""The scheduled sweeper: commits what events missed, ends what never came, empties the trash."""

from __future__ import annotations

from typing import Any

from minitoolstream.api import schema
from minitoolstream.api.app import App, Request, Response, answer, run
from minitoolstream.bootstrap import current_core
from minitoolstream.services.describe import describe_status
from minitoolstream.services.reconcile_uploads import reconcile

app = App("ttl-sweeper")


@app.endpoint("POST", "/v1/reconcile", "Run the reconciler now", response=schema.Reconciled)
async def run_reconciler(request: Request) -> Response:
    return answer((await reconcile(request.core)).counts())


@app.endpoint("GET", "/v1/status", "Figures for an operator", response=schema.Status)
async def read_status(request: Request) -> Response:
    return answer(await describe_status(request.core))


@app.schedule("rate(1 minute)")
def sweep(_event: Any) -> dict[str, int]:
    async def swept() -> dict[str, int]:
        return (await reconcile(await current_core())).counts()

    return run(swept())
