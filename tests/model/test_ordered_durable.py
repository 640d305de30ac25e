"""An ordered durable against a model: readers that come, go, die and are fenced; acks, seeks, splits, retention.

Who owns a partition is the server's choice, within the rules below; what an ack changes is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.stored import Stored, messages_of
from tests.model.world import MINUTE, Opening, World, follow

ALL = 10_000
DURABLE = "o"
PARTITION, OWNER, FENCE = 2, 4, 5
PICKS = st.integers(0, 199)
NAMES = st.sampled_from(["anna", "boris", "clara"])
HASHES = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4)
RARELY = st.sampled_from([False, False, False, False, True])
COVERED = {
    "joined", "fenced by a namesake", "left", "died", "owned by two", "acked", "acked in steps", "read by a session",
    "looked at",
    "sought back", "split", "child read", "vanished", "expired unread", "restarted", "made again", "ahead",
    "session_fenced", "unknown_session", "partition_lost", "position_moved", "sessions_active", "beyond_end",
}  # fmt: skip


@dataclass
class Session:
    epoch: int
    ttl: int
    until: int


@dataclass
class Grant:
    """What a reader was told once: it may use it for ever after."""

    session_id: str
    epoch: int
    partition: int
    fence: int


@dataclass
class Lane:
    parent: int | None = None
    is_active: bool = True
    messages: list[int] = field(default_factory=list)


def owners_in(rows: Iterable[Any]) -> dict[int, tuple[str | None, int]]:
    return {row[PARTITION]: (row[OWNER], row[FENCE]) for row in rows}


class OrderedMachine(RuleBasedStateMachine):
    def __init__(self, world: World, opening: Opening) -> None:
        super().__init__()
        self.world = world
        self.opening = opening
        self.subject = world.new_subject()
        self.messages: dict[int, Stored] = {}
        self.lanes: dict[int, Lane] = {}
        self.sessions: dict[str, Session] = {}
        self.grants: list[Grant] = []
        self.fences: dict[int, tuple[str | None, int]] = {}
        self.floor = 0
        self.acked: dict[int, int] = {}
        self.top = 0

    @initialize(partitions=st.integers(1, 4), hashes=st.lists(HASHES, min_size=1, max_size=4))
    def begins(self, partitions: int, hashes: list[list[int]]) -> None:
        self.world.call("subject_put", self.subject, {"partitions": partitions})
        self.lanes = {number: Lane() for number in range(partitions)}
        for some in hashes:
            self.publish(some)
        self._make(min(self.messages))
        self.join("anna", 3)
        self.ack_by_a_session(pick=0, steps=1, beyond=False, other=None)
        self.join("boris", 10)
        for _ in self.opening(self):
            self.stands_where_the_model_says()

    def _make(self, start: int) -> None:
        made = self._call("consumer_put", {"start": start})
        assert made["created"]
        self.floor, self.acked, self.sessions, self.fences = made["consumer"]["last_sequence"], {}, {}, {}
        assert self.floor == start - 1
        self.told_before = len(self.grants)

    # -- what happens

    @rule(hashes=HASHES)
    def publish(self, hashes: list[int]) -> None:
        """Messages with keys: each goes where its hash says, and only to an active partition."""
        marks = [{"index": index, "group": "g", "hash": number} for index, number in enumerate(hashes)]
        runs = self.world.publish(self.subject, [1] * len(hashes), marks=marks)
        for _, count, sequence, partition, _ in runs:
            lane = self.lanes[partition]
            assert lane.is_active
            assert sequence > self.top
            self.top = sequence + count - 1
            lane.messages += range(sequence, sequence + count)
        page = self.world.call("messages_get", self.subject, 1, ALL)
        self.messages = {stored.sequence: stored for stored in messages_of(page["rows"])}
        assert sorted(self.messages) == sorted(one for lane in self.lanes.values() for one in lane.messages)

    @rule(session_id=NAMES, ttl=st.sampled_from([1, 3, 10]))
    def join(self, session_id: str, ttl: int) -> None:
        """Under a name that somebody has, it fences them."""
        self._saw("fenced by a namesake", [session_id] if session_id in self._alive() else [])
        answer = self._call("session_join", session_id, ttl * MINUTE)
        assert answer["epoch"] not in {grant.epoch for grant in self.grants}
        namesakes = [grant.epoch for grant in self.grants[self.told_before :] if grant.session_id == session_id]
        assert answer["epoch"] > max(namesakes, default=0)
        self._bury()
        self.sessions[session_id] = Session(answer["epoch"], ttl, self.world.now + ttl)
        self._told(answer)
        self._saw("joined", [session_id])

    @precondition(lambda self: self.grants)
    @rule(pick=PICKS)
    def heartbeat(self, pick: int) -> None:
        grant = self._grant(pick)
        if (refused := self._why_not(grant)) is not None:
            assert self._refused_reader("session_heartbeat", grant.session_id, grant.epoch) == refused
            return
        answer = self._call("session_heartbeat", grant.session_id, grant.epoch)
        self._renew(grant.session_id)
        self._told(answer)

    @precondition(lambda self: self.grants)
    @rule(pick=PICKS, limit=st.sampled_from([1, 2, 100]), got=st.integers(0, 3))
    def read_by_a_session(self, pick: int, limit: int, got: int) -> None:
        """`got`: how far behind its position the reader says it has come."""
        grant = self._grant(pick)
        options = {"limit": limit, "session_id": grant.session_id, "epoch": grant.epoch}
        if (refused := self._why_not(grant)) is not None:
            assert self._refused_reader("consumer_read", options) == refused
            return
        unread = (
            [one for one in self.lanes[grant.partition].messages if one > self._position(grant.partition)]
            if (grant.partition in self.lanes)
            else []
        )
        after = unread[:got][-1:]
        options["after_by_partition"] = [[grant.partition, one, grant.fence] for one in after]
        page = self._call("consumer_read", options)
        self._renew(grant.session_id)
        held = self._told({**page, "session_id": grant.session_id, "epoch": grant.epoch})
        begin = {partition: self._position(partition) for partition in held}
        if after and held.get(grant.partition) == grant.fence:
            begin[grant.partition] = max(begin[grant.partition], after[0])
        self._is_page(page, begin, limit)
        self._saw("read by a session", page["rows"])

    @rule(limit=st.sampled_from([1, 3, 100]))
    def look(self, limit: int) -> None:
        """Without a session: all partitions, each behind its position, in sequence order."""
        page = self._call("consumer_read", {"limit": limit})
        assert page["position"] == self.floor
        self._is_page(page, {partition: self._position(partition) for partition in self.lanes}, limit)
        self._saw("looked at", page["rows"])

    @precondition(lambda self: self.grants)
    @rule(pick=PICKS, steps=st.integers(1, 4), beyond=st.sampled_from([False] * 7 + [True]), other=st.none() | PICKS)
    def ack_by_a_session(self, pick: int, steps: int, beyond: bool, other: int | None) -> None:
        """With whatever it was told once, for one partition or two. All of it counts, or nothing."""
        grants = [self._grant(pick)]
        if other is not None:
            grants += [one for one in [self._grant(other)] if one.partition != grants[0].partition]
        acks = [[one.partition, one.fence, self._ahead(one.partition, steps, beyond)] for one in grants]
        asked = (grants[0].session_id, grants[0].epoch, acks)
        owners = self._owners()
        refused = self._why_not(grants[0])
        lost = [p for p, fence, _ in acks if owners.get(p) != (grants[0].session_id, fence)]
        if len(self._alive()) < len(self.sessions):  # who notices that spreads the partitions anew before it looks
            lost += [p for p, _, _ in acks if self._has_ended(p)]
        if refused is None and beyond:
            refused = "beyond_end"
        if refused is not None or lost:
            before = self._standing()
            code = self._refused_reader("consumer_ack_partitions", *asked)
            if lost and refused in {None, "beyond_end"}:
                refused = self._why_lost(grants[0].session_id, acks)
            assert code == refused
            if refused in {"partition_lost", "position_moved", "beyond_end"}:
                self._renew(grants[0].session_id)  # it is alive, whatever it asked for
            assert self._standing() == before, "nothing it acks counts"
            return
        before_ack = self.floor
        answer = self._call("consumer_ack_partitions", *asked)
        self._renew(grants[0].session_id)
        for partition, _, sequence in acks:
            self.acked[partition] = max(self.acked.get(partition, 0), sequence)
        self._raise_floor()
        assert answer == {"last_sequence": self.floor}
        self._saw("acked", acks)
        self._saw("acked in steps", [1] if self.floor > before_ack > 0 else [])

    @rule(pick=PICKS, beyond=st.sampled_from([False, False, False, True]))
    def ack_all(self, pick: int, beyond: bool) -> None:
        """The position without a session: refused while there are live ones."""
        sequence = self._top() + 1 if beyond else sorted([0, *self.messages])[pick % (len(self.messages) + 1)]
        if self._alive():
            before = self._standing()
            assert self._refused("consumer_ack", sequence) == "sessions_active"
            assert self._standing() == before
        elif beyond:
            assert self._refused("consumer_ack", sequence) == "beyond_end"
        else:
            self.floor = max(self.floor, sequence)
            assert self._call("consumer_ack", sequence) == {"last_sequence": self.floor}

    @precondition(lambda self: self.grants)
    @rule(really=RARELY, pick=PICKS)
    def leave(self, really: bool, pick: int) -> None:
        if not really:
            return
        grant = self._grant(pick)
        if (refused := self._why_not(grant)) is not None:
            assert self._refused_reader("session_leave", grant.session_id, grant.epoch) == refused
            return
        assert self._call("session_leave", grant.session_id, grant.epoch) is True
        self._bury()
        del self.sessions[grant.session_id]
        self._saw("left", [grant])

    @rule(minutes=st.sampled_from([1, 1, 2, 5]))
    def time_passes(self, minutes: int) -> None:
        self.world.pass_time(minutes)

    @rule(seconds=st.sampled_from([-3600, 3600]))
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.world.call("clock_set", seconds)

    @rule()
    def the_schedule_ticks(self) -> None:
        dead = [one for one in self.sessions if one not in self._alive()]
        self.world.call("consumers_tick", 500)
        self._bury()
        left = {row[2] for row in self.world.call("space_select", "session", [DURABLE, self.subject])}
        assert not left & set(dead), "dead sessions are dropped"
        assert left == set(self.sessions)

    @rule(really=RARELY, pick=PICKS, to_the_end=st.booleans())
    def seek(self, really: bool, pick: int, to_the_end: bool) -> None:
        if not really or not self.messages:
            return
        target = self._top() + 1 if to_the_end else sorted(self.messages)[pick % len(self.messages)]
        assert self._refused("consumer_seek", self._top() + 2) == "beyond_end"
        owners = self._owners()
        self._saw("sought back", [target] if target <= self.floor else [])
        self._call("consumer_seek", target)
        self.floor, self.acked = target - 1, {}
        for partition, (owner, fence) in self._owners().items():
            assert fence > owners[partition][1], "whoever reads must begin again"
            assert owner == owners[partition][0]

    @rule(really=RARELY, pick=PICKS)
    def a_partition_splits(self, really: bool, pick: int) -> None:
        active = [number for number, lane in self.lanes.items() if lane.is_active]
        if not really or len(self.lanes) > 9:
            return
        number = active[pick % len(active)]
        children = self.world.call("partition_split", self.subject, number)
        self.lanes[number].is_active = False
        for child in children:
            assert child not in self.lanes
            self.lanes[child] = Lane(parent=number)
        self._vanish()
        self._saw("split", children)

    @precondition(lambda self: self.messages)
    @rule(really=RARELY, count=st.integers(1, 3))
    def the_head_expires(self, really: bool, count: int) -> None:
        if not really:
            return
        extents = sorted({stored.extent for stored in self.messages.values()})[:count]
        assert self.world.call("head_remove", self.subject, count) == len(extents)
        for stored in [stored for stored in self.messages.values() if stored.extent in extents]:
            self._saw("expired unread", [1] if stored.sequence > self._position(stored.partition) else [])
            del self.messages[stored.sequence]
            self.lanes[stored.partition].messages.remove(stored.sequence)
        self._vanish()

    @rule(really=RARELY, pick=PICKS)
    def made_again(self, really: bool, pick: int) -> None:
        if not really or not self.messages or pick % 2:
            return
        assert self._call("consumer_delete") is True
        assert self._refused("consumer_read", {"limit": 1}) == "unknown_durable"
        self._make(sorted(self.messages)[pick % len(self.messages)])
        self._saw("made again", [1])

    @precondition(lambda self: self.sessions)
    @rule(really=st.sampled_from([False] * 7 + [True]))
    def tarantool_is_killed(self, really: bool) -> None:
        """Each session, dead or alive, has its whole time again."""
        if not really:
            return
        self.world.restart()
        for session in self.sessions.values():
            session.until = session.ttl
        self._saw("restarted", self.sessions)

    # -- what must hold

    @invariant()
    def stands_where_the_model_says(self) -> None:
        look = self._call("durable_look")
        seen = look["consumer"]
        assert seen["last_sequence"] == self.floor
        lanes = {lane["partition"]: lane for lane in seen["partitions"]}
        assert set(lanes) == set(self.lanes)
        for number, lane in self.lanes.items():
            position = self._position(number)
            behind = [sequence for sequence in lane.messages if sequence > position]
            assert (lanes[number]["position"], lanes[number]["lag"]) == (position, len(behind))
            if behind:
                before = self.messages[behind[0]].offset - 1
                assert lanes[number].get("offset") == (None if before < 0 else before)
        assert seen["lag"] == sum(lane["lag"] for lane in seen["partitions"])
        assert seen["latest_sequence"] == max(self.messages, default=0)
        assert seen["sessions"] == len(self._alive())
        if any(self.acked.get(number, 0) > self.floor for number in self.lanes):
            self._saw("ahead", [1])
        self._owners_fit(look)

    def _owners_fit(self, look: Any) -> None:
        """A partition has one owner, and a new one a new fence."""
        owners = owners_in(look["consumer_partition"])
        for partition, (owner, fence) in owners.items():
            assert owner is None or owner in self.sessions
            known_owner, known_fence = self.fences.get(partition, (None, 0))
            assert fence >= known_fence
            assert owner in {known_owner, None} or fence > known_fence, "a new owner has a new fence"
            self.fences[partition] = (owner or known_owner, fence)
        self._saw("owned by two", [1] if len({owner for owner, _ in owners.values() if owner}) > 1 else [])

    def _told(self, answer: Any) -> dict[int, int]:
        """What a live session was told is so: readable partitions, evenly spread, parents before their children."""
        held = {share["partition"]: share["fence"] for share in answer["partitions"]}
        owners = self._owners()
        for share in answer["partitions"]:
            partition, fence = share["partition"], share["fence"]
            assert owners[partition] == (answer["session_id"], fence)
            assert share["position"] == self._position(partition)
            self.grants.append(Grant(answer["session_id"], answer["epoch"], partition, fence))
            self._saw("child read", [1] if self.lanes[partition].parent is not None else [])
        owned = [owner for owner, _ in owners.values() if owner]
        readable = {number for number in self.lanes if self._is_readable(number)}
        assert {partition for partition, (owner, _) in owners.items() if owner} == readable
        shares = [owned.count(session_id) for session_id in self._alive()]
        assert max(shares) - min(shares) <= 1, "spread evenly"
        if not held:
            self.grants.append(Grant(answer["session_id"], answer["epoch"], 0, 0))
        return held

    def _is_page(self, page: Any, begin: dict[int, int], limit: int) -> None:
        """Exactly the first messages behind these positions, and nothing is passed over."""
        expected = sorted(
            sequence for number, after in begin.items() for sequence in self.lanes[number].messages if sequence > after
        )
        found = messages_of(page["rows"])
        assert [stored.sequence for stored in found] == expected[:limit]
        rest = expected[limit:]
        assert page["next_sequence"] <= (rest[0] if rest else page["watermark"] + 1)
        assert not found or page["next_sequence"] > found[-1].sequence

    # -- help

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.world.call(name, self.subject, DURABLE, *arguments)

    def _refused(self, name: str, *arguments: Any) -> str:
        return self.world.refusal(name, self.subject, DURABLE, *arguments)

    def _refused_reader(self, name: str, *arguments: Any) -> str:
        """Whoever notices that others are dead drops them, also when it is refused itself."""
        refused = self._refused(name, *arguments)
        self._bury()
        return refused

    def _saw(self, what: str, some: Iterable[Any]) -> None:
        self.world.seen[what] += len(list(some))

    def _alive(self) -> list[str]:
        return [name for name, session in self.sessions.items() if session.until > self.world.now]

    def _bury(self) -> None:
        dead = [name for name in self.sessions if name not in self._alive()]
        for name in dead:
            del self.sessions[name]
        self._saw("died", dead)

    def _renew(self, session_id: str) -> None:
        self._bury()
        session = self.sessions[session_id]
        session.until = self.world.now + session.ttl

    def _why_not(self, grant: Grant) -> str | None:
        """Why this reader is no reader any more."""
        session = self.sessions.get(grant.session_id)
        if session is None or session.until <= self.world.now or grant.epoch > session.epoch:
            return "unknown_session"
        return "session_fenced" if grant.epoch < session.epoch else None

    def _why_lost(self, session_id: str, acks: list[list[int]]) -> str:
        """What is said of the first partition that is not as it was told."""
        owners = self._owners()
        now = [(owners.get(partition, (None, 0)), fence) for partition, fence, _ in acks]
        owner = next(owner for (owner, current), fence in now if (owner, current) != (session_id, fence))
        return "position_moved" if owner == session_id else "partition_lost"

    def _grant(self, pick: int) -> Grant:
        """Two times of three one of the last that were told."""
        if pick % 3:
            return self.grants[-1 - pick % min(len(self.grants), 4)]
        return self.grants[pick % len(self.grants)]

    def _owners(self) -> dict[int, tuple[str | None, int]]:
        return owners_in(self.world.call("space_select", "consumer_partition", [DURABLE, self.subject]))

    def _standing(self) -> Any:
        """All of the durable that an ack could change."""
        seen = self._call("consumer_get")
        lanes = [(lane["partition"], lane["position"], lane["lag"]) for lane in seen["partitions"]]
        return seen["last_sequence"], seen["lag"], lanes

    def _has_ended(self, partition: int) -> bool:
        """It was split, or is gone, and all of it is read: nobody reads it when partitions are spread anew."""
        lane = self.lanes.get(partition)
        if lane is None:
            return True
        return not lane.is_active and max(lane.messages, default=0) <= self._position(partition)

    def _position(self, partition: int) -> int:
        return max(self.floor, self.acked.get(partition, 0))

    def _is_read(self, partition: int) -> bool:
        return not any(sequence > self._position(partition) for sequence in self.lanes[partition].messages)

    def _is_readable(self, partition: int) -> bool:
        lane = self.lanes[partition]
        above = lane.parent
        while above is not None and above in self.lanes:
            if not self._is_read(above):
                return False
            above = self.lanes[above].parent
        return lane.is_active or not self._is_read(partition)

    def _raise_floor(self) -> None:
        behind = [self._position(number) for number in self.lanes if not self._is_read(number)]
        self.floor = max(self.floor, min(behind, default=self._top()))

    def _top(self) -> int:
        watermark: int = self.world.call("messages_get", self.subject, 1, 1)["watermark"]
        return watermark

    def _ahead(self, partition: int, steps: int, beyond: bool) -> int:
        """The sequence of a message some steps behind the position, or before it when there is none."""
        if beyond:
            return self._top() + 1
        lane = self.lanes.get(partition, Lane())
        unread = [sequence for sequence in lane.messages if sequence > self._position(partition)]
        return (unread[:steps] or lane.messages or [0])[-1]

    def _vanish(self) -> None:
        gone = [number for number, lane in self.lanes.items() if not lane.is_active and not lane.messages]
        for number in gone:
            del self.lanes[number]
        self._saw("vanished", gone)


def a_namesake(machine: OrderedMachine) -> Iterator[None]:
    machine.join("anna", 3)
    yield
    machine.heartbeat(pick=0)
    yield


def one_that_leaves(machine: OrderedMachine) -> Iterator[None]:
    machine.leave(really=True, pick=0)
    yield
    machine.heartbeat(pick=0)
    yield


def one_that_dies(machine: OrderedMachine) -> Iterator[None]:
    machine.time_passes(5)
    yield
    machine.the_schedule_ticks()
    yield


def seeks(machine: OrderedMachine) -> Iterator[None]:
    machine.seek(really=True, pick=0, to_the_end=True)
    yield
    machine.seek(really=True, pick=0, to_the_end=False)
    yield
    machine.ack_by_a_session(pick=0, steps=1, beyond=False, other=None)
    yield


def another_durable(machine: OrderedMachine) -> Iterator[None]:
    machine.made_again(really=True, pick=0)
    yield


def children(machine: OrderedMachine) -> Iterator[None]:
    machine.publish([1])
    yield
    machine.a_partition_splits(really=True, pick=0)
    yield
    while machine.messages:
        machine.the_head_expires(really=True, count=3)
        yield
    machine.join("clara", 3)
    yield


def a_kill(machine: OrderedMachine) -> Iterator[None]:
    machine.tarantool_is_killed(really=True)
    yield


def test_an_ordered_durable_follows_its_model(world: World) -> None:
    openings = (a_namesake, one_that_leaves, one_that_dies, seeks, another_durable, children, a_kill)
    follow(OrderedMachine, openings, world)
    missing = COVERED - {what for what, count in world.seen.items() if count}
    assert not missing, f"the examples never came to: {missing}"
