"""MySQL sender: each shard's rows into the database of that shard (setting `pipeline.shards`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from minitoolstream.client import Client
from minitoolstream.config import Settings
from minitoolstream.pipeline.daemon import Manner, Outcome
from minitoolstream.pipeline.places import Place
from minitoolstream.pipeline.run import SENDER, run_sender
from spark_emr.steps._daemon import UNDER_SPARK, daemon_arguments, run_stage
from spark_emr.steps._step import Run, Step, main


def daemon(settings: Settings, client: Client, files: Place, manner: Manner) -> Outcome:
    return run_sender(client, files, settings, manner)


def work(run: Run) -> Mapping[str, Any]:
    return run_stage(run, SENDER, daemon)


STEP = Step("mysql_sender", "Send rows into the shards' databases.", daemon_arguments, work, uses_spark=UNDER_SPARK)

if __name__ == "__main__":
    sys.exit(main(STEP))
