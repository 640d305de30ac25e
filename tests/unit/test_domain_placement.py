"""Which peers hold copies."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitoolstream.domain.errors import MtsError
from minitoolstream.domain.placement import Peer, check_rf, choose_peers, nearest, next_look

PEERS = st.lists(
    st.builds(Peer, st.uuids().map(str), st.sampled_from(["a", "b", "c"]), st.floats(0.1, 10)),
    max_size=8,
    unique_by=lambda peer: peer.id,
)
DIGESTS = st.integers(0, 1_000_000).map(lambda number: hashlib.sha256(str(number).encode()).digest())
RFS = st.integers(1, 5)


@given(DIGESTS, PEERS, RFS)
def test_there_are_as_many_as_asked_for_or_as_there_are(digest: bytes, peers: list[Peer], rf: int) -> None:
    chosen = choose_peers(digest, peers, rf)
    assert len(chosen) == min(rf, len(peers))
    assert chosen <= {peer.id for peer in peers}


@given(DIGESTS, PEERS, RFS, st.randoms())
def test_the_order_in_which_peers_are_listed_means_nothing(
    digest: bytes, peers: list[Peer], rf: int, random: object
) -> None:
    shuffled = sorted(peers, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert choose_peers(digest, peers, rf) == choose_peers(digest, shuffled, rf)


@given(DIGESTS, st.integers(1, 7), RFS)
def test_a_peer_that_goes_moves_its_own_copies_alone(digest: bytes, count: int, rf: int) -> None:
    peers = [Peer(f"peer-{number}", "one") for number in range(count + 1)]
    before, after = choose_peers(digest, peers, rf), choose_peers(digest, peers[:-1], rf)
    assert before - after <= {peers[-1].id}
    assert len(after - before) <= len(before - after)


@given(DIGESTS, PEERS, RFS)
def test_copies_are_spread_over_zones(digest: bytes, peers: list[Peer], rf: int) -> None:
    chosen = choose_peers(digest, peers, rf)
    used = {peer.zone for peer in peers if peer.id in chosen}
    assert len(used) == min(len(chosen), len({peer.zone for peer in peers}))


@given(DIGESTS, PEERS, RFS)
def test_a_peer_that_holds_nothing_may_go_unnoticed(digest: bytes, peers: list[Peer], rf: int) -> None:
    chosen = choose_peers(digest, peers, rf)
    for peer in peers:
        if peer.id not in chosen:
            assert choose_peers(digest, [one for one in peers if one is not peer], rf) == chosen


@given(DIGESTS, PEERS, RFS)
def test_only_the_zones_asked_for_are_used(digest: bytes, peers: list[Peer], rf: int) -> None:
    chosen = choose_peers(digest, peers, rf, {"a"})
    assert chosen <= {peer.id for peer in peers if peer.zone == "a"}


def test_a_full_peer_keeps_what_it_has_and_gets_nothing() -> None:
    peers = [Peer("full", "a", takes_new=False), Peer("other", "a")]
    for number in range(20):
        assert choose_peers(bytes([number]), peers, 1) == {"other"}
    held = {tuple(choose_peers(bytes([number]), peers, 1, held={"full"})) for number in range(20)}
    assert held == {("full",), ("other",)}


def test_a_weight_of_two_gets_twice_as_much() -> None:
    peers = [Peer("light", "a", 1), Peer("heavy", "a", 2)]
    counts = Counter(next(iter(choose_peers(number.to_bytes(4, "big"), peers, 1))) for number in range(6000))
    assert 1.8 < counts["heavy"] / counts["light"] < 2.2


@pytest.mark.parametrize("rf", [0, -1, 3, 17])
def test_more_copies_than_peers_or_none_are_refused(rf: int) -> None:
    with pytest.raises(MtsError, match="rf"):
        check_rf(rf, [Peer("a", "x"), Peer("b", "y")])


def test_the_nearest_peer_is_that_of_the_zone_then_one_alike() -> None:
    peers = [Peer("us", "us-east"), Peer("eu2", "eu-north"), Peer("eu1", "eu-west")]
    assert [peer.id for peer in nearest(peers, "eu-west")] == ["eu1", "eu2", "us"]


def test_looks_become_rarer_up_to_an_hour() -> None:
    assert [next_look(number) for number in (0, 1, 3, 5000)] == [1, 2, 8, 3600]
