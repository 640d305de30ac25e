"""Reading through the real servers."""

from __future__ import annotations

import base64
import json

from tests.live import Live, send


def fill(live: Live, subject: str, count: int) -> list[int]:
    body = b"\n".join(json.dumps({"data": f"m{i}"}).encode() for i in range(count))
    answer = live.api("POST", f"/v1/subjects/{subject}/messages/batch", body, {"content-type": "application/x-ndjson"})
    return [result["sequence"] for result in answer.json["results"]]


def test_pages_follow_each_other_without_a_hole(live: Live, subject: str) -> None:
    sequences = fill(live, subject, 10)
    seen: list[int] = []
    start = 1
    while True:
        page = live.api("GET", f"/v1/subjects/{subject}/messages?start={start}&limit=3").json
        seen += [message["sequence"] for message in page["messages"]]
        start = page["next_sequence"]
        if not page["messages"]:
            break
    assert seen == sequences


def test_start_takes_words_too(live: Live, subject: str) -> None:
    sequences = fill(live, subject, 3)
    path = f"/v1/subjects/{subject}/messages"
    assert len(live.api("GET", f"{path}?start=first").json["messages"]) == 3
    assert [m["sequence"] for m in live.api("GET", f"{path}?start=last").json["messages"]] == sequences[-1:]
    new = live.api("GET", f"{path}?start=new").json
    assert new["messages"] == []
    assert new["next_sequence"] > sequences[-1]


def test_inline_brings_small_payloads_along(live: Live, subject: str) -> None:
    fill(live, subject, 3)
    live.put(live.ticket(subject, 5), b"plain")
    page = live.api("GET", f"/v1/subjects/{subject}/messages?inline=true").json
    data = [base64.b64decode(message["data"]) for message in page["messages"]]
    assert data == [b"m0", b"m1", b"m2", b"plain"]


def test_the_extents_view_gives_one_url_for_a_pack(live: Live, subject: str) -> None:
    fill(live, subject, 100)
    page = live.api("GET", f"/v1/subjects/{subject}/messages?view=extents").json
    (extent,) = page["extents"]
    assert (extent["count"], len(extent["sizes"])) == (100, 100)
    frames = send("GET", extent["url"], headers={"range": extent["range"]}).body
    assert len(frames) == extent["size"] + 8 * 100


def test_a_packed_message_shows_itself_and_not_its_neighbours(live: Live, subject: str) -> None:
    fill(live, subject, 3)
    message = live.messages(subject)[1]
    first, last = message["range"].removeprefix("bytes=").split("-")
    wider = f"bytes={int(first) - 8}-{int(last) + 8}"
    assert send("GET", message["url"], headers={"range": wider}).status == 403
    assert send("GET", message["url"]).status in {400, 403}


def test_one_message_by_its_sequence(live: Live, subject: str) -> None:
    sequences = fill(live, subject, 3)
    message = live.api("GET", f"/v1/messages/{sequences[1]}?inline=true").json
    assert base64.b64decode(message["data"]) == b"m1"
    assert live.api("GET", "/v1/messages/4000000000").status == 404


def test_the_latest_sequence_of_a_subject(live: Live, subject: str) -> None:
    path = f"/v1/subjects/{subject}/latest"
    before = live.api("GET", path).json
    assert before == {"subject": subject, "latest_sequence": 0, "now": before["now"]}
    sequences = fill(live, subject, 2)
    after = live.api("GET", path).json
    assert after["latest_sequence"] == sequences[-1]
    came = live.api("GET", f"/v1/messages/{sequences[-1]}").json["create_at"]
    assert before["now"] <= came <= after["now"]
