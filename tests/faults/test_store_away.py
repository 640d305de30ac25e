"""The object store goes away: workers of a queue wait for it, and no message becomes a dead letter by that."""

from __future__ import annotations

import threading
from pathlib import Path

from minitoolstream.client import Client, Delivery
from tests.live import eventually, start_live


def test_a_queue_outlives_an_outage_of_the_object_store(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    with Client(live.url, live.token, retry_for=1) as client:
        client.publish_batch("jobs", [b"one", b"two", b"three"])
        client.consumers.put("jobs", "workers", mode="shared", max_deliver=1)
        live.minio.stop()

        leased = live.api("POST", "/v1/subjects/jobs/consumers/workers/lease", {"inline": True, "limit": 3}).json
        assert [("data" in message, "url" in message) for message in leased["messages"]] == [(False, True)] * 3
        body = {"lease_id": leased["lease_id"], "sequences": [one["sequence"] for one in leased["messages"]]}
        nacked = live.api("POST", "/v1/subjects/jobs/consumers/workers/nack", {**body, "untried": True})
        assert nacked.json == {"nacked": 3, "dead_lettered": 0}

        asked, done = threading.Event(), []
        work = client.subscribe("jobs", durable="workers", mode="shared")

        def handle(delivery: Delivery) -> None:
            asked.set()
            done.append(delivery.data())

        worker = threading.Thread(target=work.run, args=(handle,), kwargs={"retry_delay": 0.1})
        worker.start()
        assert asked.wait(30), "messages are handed out without their payloads"
        live.minio.start()
        eventually(lambda: client.consumers.get("jobs", "workers").lag == 0)
        work.stop()
        worker.join()
    assert sorted(done) == [b"one", b"three", b"two"]
    assert live.messages("jobs.dlq") == []
    live.stop()
