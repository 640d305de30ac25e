"""A shared durable against a model: leases, acks, nacks, extensions, time, dead letters, seeks, retention, restarts.

Each message that was published is in one place: not handed out yet, handed out, done, dead, or removed.
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
DURABLE = "q"
LAST, FIRST, IN_RANGE = 2, 3, 4
PICKS = st.integers(0, 199)
SOME = st.lists(PICKS, min_size=1, max_size=6)
MINUTES = st.sampled_from([1, 2, 5])
RARELY = st.sampled_from([False, False, False, False, True])
RED = [{"header": "colour", "op": "equals", "value": "red"}]
COVERED = {
    "leased", "leased again", "acked", "nacked", "untried", "extended", "ended", "dead", "replayed", "purged",
    "removed under a lease",
    "sought back", "made again", "restarted", "lease_lost", "beyond_end", "passed over",
}  # fmt: skip


@dataclass
class Message:
    """`due` is the minute from which a message that was handed out may be handed out again."""

    stored: Stored
    is_out: bool = False
    is_done: bool = False
    lease_id: str | None = None
    granted: int = 0
    due: int = 0
    tries: int = 0

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    @property
    def is_new(self) -> bool:
        return not self.is_out and not self.is_done

    def finish(self) -> None:
        self.is_out, self.is_done, self.lease_id = False, True, None

    def begin_again(self) -> None:
        self.is_out, self.is_done, self.lease_id, self.tries = False, False, None, 0


@dataclass
class Leases:
    """All that were ever granted: sequences by lease, held or not."""

    granted: dict[str, list[int]] = field(default_factory=dict)

    def pick(self, number: int) -> str:
        names = list(self.granted)
        return names[number % len(names)]


class SharedMachine(RuleBasedStateMachine):
    def __init__(self, world: World, opening: Opening) -> None:
        super().__init__()
        self.world = world
        self.opening = opening
        self.subject = world.new_subject()
        self.dead_letters = f"{self.subject}.dlq"
        self.messages: dict[int, Message] = {}
        self.dead: dict[int, Stored] = {}
        self.leases = Leases()
        self.dead_leases: list[tuple[str, list[int]]] = []
        self.next_sequence = 0
        self.has_begun = False

    @initialize(
        partitions=st.sampled_from([1, 1, 3]),
        max_deliver=st.sampled_from([1, 2, 1, 3, 0]),
        filtered=st.sampled_from([False, False, True]),
        sizes=st.lists(st.integers(0, 9), min_size=4, max_size=12),
    )
    def begins(self, partitions: int, max_deliver: int, filtered: bool, sizes: list[int]) -> None:
        self.max_deliver, self.filtered = max_deliver, filtered
        self.world.call("subject_put", self.subject, {"partitions": partitions})
        self._make()
        self.publish(sizes, "red")
        self.world.call("consumer_put", self.dead_letters, DURABLE, {"mode": "shared"})
        self.has_begun = True
        for message in self._lease(4, 2)[:2]:
            assert message.lease_id is not None
            self._nack(message.lease_id, [message.sequence], 0)
        for _ in self.opening(self):
            self.stands_where_the_model_says()

    def _make(self, **more: Any) -> None:
        wanted = {"mode": "shared", "max_deliver": self.max_deliver, "ack_wait": MINUTE, **more}
        if self.filtered:
            wanted["filter"] = RED
        made = self.world.call("consumer_put", self.subject, DURABLE, wanted)
        assert made["created"]
        self.next_sequence = made["consumer"]["next_sequence"]

    # -- what happens

    @rule(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5), colour=st.sampled_from(["red", "blue", "mixed"]))
    def publish(self, sizes: list[int], colour: str) -> None:
        own = [[index, {"colour": "blue"}, None] for index in range(0, len(sizes), 2)] if colour == "mixed" else None
        shared = {"colour": "red" if colour == "mixed" else colour}
        self.world.publish(self.subject, sizes, headers=shared, own=own)
        assert len(self._learn()) == len(sizes)

    @rule(limit=st.sampled_from([1, 2, 3, 5, 50]), minutes=st.none() | MINUTES)
    def lease(self, limit: int, minutes: int | None) -> None:
        self._lease(limit, minutes)

    def _lease(self, limit: int, minutes: int | None) -> list[Message]:
        due, fresh = self._due(), self._fresh()
        answer = self._call("delivery_lease", limit, None if minutes is None else minutes * MINUTE)
        given = [self.messages[stored.sequence] for stored in messages_of(answer["rows"])]
        for message in due:
            if message.granted > self.world.now:
                message.granted, message.due = self.world.now, self.world.now
        dead = self._learn_dead(answer["dead_lettered"])
        for sequence in dead:
            assert self.messages[sequence] in due, "only what was due is given up"
            assert self._is_used_up(self.messages[sequence])
            self.messages[sequence].finish()
        order = [message.sequence for message in given]
        assert order == sorted(set(order))
        assert len(given) <= limit
        new = [message for message in given if message.is_new]
        again = [message for message in given if not message.is_new]
        assert new == fresh[: len(new)], "new ones are handed out in order, and none is passed over"
        assert all(message in due and not self._is_used_up(message) for message in again)
        rest = [message for message in due if message.is_out and message not in again]
        if len(given) < limit and answer.get("next_due_in_ms") != 0:
            assert not rest
            assert new == fresh, "whatever can be leased is leased"
        tries = {}
        for first, last, count in answer["tries"]:
            tries.update({sequence: count for sequence in order if first <= sequence <= last})
        lasts = 1 if minutes is None else minutes
        for message in given:
            message.tries += 1
            message.is_out, message.lease_id = True, answer["lease_id"]
            message.granted, message.due = self.world.now, self.world.now + lasts
        assert tries == {message.sequence: message.tries for message in given}
        if given:
            self.leases.granted[answer["lease_id"]] = order
        self._saw("leased", given)
        self._saw("leased again", again)
        self._saw("dead", dead)
        return given

    @precondition(lambda self: self.leases.granted)
    @rule(pick=PICKS, some=SOME, wrong=st.sampled_from([None] * 6 + ["other", "beyond", "lease"]))
    def ack(self, pick: int, some: list[int], wrong: str | None) -> None:
        lease_id, sequences = self._of_a_lease(pick, some, wrong)
        if not self._all_held(lease_id, sequences):
            assert self._refused("delivery_ack", lease_id, sequences) == "lease_lost"
            return
        assert self._call("delivery_ack", lease_id, sequences) == {"acked": len(set(sequences))}
        for sequence in sequences:
            self.messages[sequence].finish()
        self._saw("acked", sequences)

    @precondition(lambda self: self.leases.granted)
    @rule(
        pick=PICKS,
        some=SOME,
        wrong=st.sampled_from([None] * 5 + ["other"]),
        delay=st.sampled_from([0, 0, 2]),
        untried=st.booleans(),
    )
    def nack(self, pick: int, some: list[int], wrong: str | None, delay: int, untried: bool) -> None:
        self._nack(*self._of_a_lease(pick, some, wrong), delay, untried=untried)

    def _nack(self, lease_id: str, sequences: list[int], delay: int, *, untried: bool = False) -> None:
        asked = (lease_id, sequences, delay * MINUTE, untried)
        if not self._all_held(lease_id, sequences):
            assert self._refused("delivery_nack", *asked) == "lease_lost"
            return
        answer = self._call("delivery_nack", *asked)
        given_up = set()
        if untried:
            for sequence in set(sequences):
                self.messages[sequence].tries -= 1
        else:
            given_up = {sequence for sequence in sequences if self._is_used_up(self.messages[sequence])}
        assert answer == {"nacked": len(set(sequences)), "dead_lettered": len(given_up)}
        assert self._learn_dead(len(given_up)) == given_up
        for sequence in set(sequences):
            message = self.messages[sequence]
            message.lease_id, message.granted, message.due = None, self.world.now, self.world.now + delay
            if sequence in given_up:
                message.finish()
        self._saw("untried" if untried else "nacked", sequences)
        self._saw("dead", given_up)

    @precondition(lambda self: self.leases.granted)
    @rule(pick=PICKS, some=st.none() | SOME, minutes=MINUTES)
    def extend(self, pick: int, some: list[int] | None, minutes: int) -> None:
        lease_id, sequences = self._of_a_lease(pick, some or [0], None)
        held = [message.sequence for message in self.messages.values() if message.lease_id == lease_id]
        asked = (lease_id, minutes * MINUTE, sequences if some else None)
        if not (self._all_held(lease_id, sequences) if some else held):
            assert self._refused("delivery_extend", *asked) == "lease_lost"
            return
        answer = self._call("delivery_extend", *asked)
        extended = set(sequences) if some else set(held)
        assert answer["extended"] == len(extended)
        for sequence in extended:
            self.messages[sequence].granted, self.messages[sequence].due = self.world.now, self.world.now + minutes
        self._saw("extended", extended)

    @rule(minutes=st.sampled_from([1, 1, 2, 7]))
    def time_passes(self, minutes: int) -> None:
        before = len(self._due())
        self.world.pass_time(minutes)
        self._saw("ended", self._due()[before:])

    @rule(seconds=st.sampled_from([-3600, 3600]))
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.world.call("clock_set", seconds)

    @rule()
    def the_schedule_ticks(self) -> None:
        given_up = {message.sequence for message in self._due() if self._is_used_up(message)}
        assert self.world.call("consumers_tick", 500)["dead_lettered"] >= len(given_up)
        assert self._learn_dead(len(given_up)) == given_up
        for sequence in given_up:
            self.messages[sequence].finish()
        self._saw("dead", given_up)

    @precondition(lambda self: self.dead)
    @rule(some=st.none() | SOME)
    def dead_letters_are_replayed(self, some: list[int] | None) -> None:
        letters = list(self.dead)
        picked = set(letters) if some is None else {letters[pick % len(letters)] for pick in some}
        asked = None if some is None else [*sorted(picked, reverse=True), 10**18]
        answer = self.world.call("dead_letters_replay", self.subject, asked, 500)
        assert answer == {"replayed": len(picked), "more": False}
        back = self._learn()
        assert sorted(message.payload for message in back) == sorted(self.dead[one].payload for one in picked)
        assert not any(name.startswith("mts-dlq-") for message in back for name, _ in message.headers)
        for sequence in picked:
            del self.dead[sequence]
        self._payloads_have_as_many_references_as_rows()
        self._saw("replayed", back)

    @precondition(lambda self: self.dead)
    @rule(limit=st.sampled_from([1, 2, 500]))
    def dead_letters_are_purged(self, limit: int) -> None:
        answer = self.world.call("dead_letters_purge", self.dead_letters, limit)
        gone = sorted(self.dead)[:limit]
        assert answer == {"purged": len(gone), "more": len(gone) < len(self.dead)}
        for sequence in gone:
            del self.dead[sequence]
        self._payloads_have_as_many_references_as_rows()
        self._saw("purged", gone)

    @precondition(lambda self: self.dead)
    @rule(limit=st.integers(1, 3), acked=st.integers(0, 2))
    def dead_letters_are_leased(self, limit: int, acked: int) -> None:
        """Holes come into their subject under its own durable: what is replayed or purged is leased there."""
        answer = self.world.call("delivery_lease", self.dead_letters, DURABLE, limit, MINUTE)
        given = [stored.sequence for stored in messages_of(answer["rows"])]
        assert set(given) <= set(self.dead)
        if given[:acked]:
            self.world.call("delivery_ack", self.dead_letters, DURABLE, answer["lease_id"], given[:acked])

    @precondition(lambda self: self.messages)
    @rule(really=RARELY, pick=PICKS, to_the_end=RARELY)
    def seek(self, really: bool, pick: int, to_the_end: bool) -> None:
        if not really:
            return
        end = self.world.call("messages_get", self.subject, 1, 1)["watermark"] + 1
        assert self._refused("consumer_seek", end + 1) == "beyond_end"
        target = end if to_the_end else self._pick(pick).sequence
        self._call("consumer_seek", target)
        self._saw("sought back", [target] if target < self.next_sequence else [])
        self._begin_at(target)

    @precondition(lambda self: self.messages)
    @rule(really=RARELY, pick=PICKS)
    def made_again(self, really: bool, pick: int) -> None:
        if not really:
            return
        target = self._pick(pick).sequence
        assert self._call("consumer_delete") is True
        assert self._refused("delivery_lease", 1, 30) == "unknown_durable"
        self._make(start=target)
        self._begin_at(target)
        self._saw("made again", [target])

    @precondition(lambda self: len(self.messages) > 3)
    @rule(really=st.sampled_from([False, False, True]), count=st.integers(1, 2))
    def the_head_expires(self, really: bool, count: int) -> None:
        if not really:
            return
        extents = sorted({message.stored.extent for message in self.messages.values()})[:count]
        assert self.world.call("head_remove", self.subject, count) == len(extents)
        gone = [message for message in self.messages.values() if message.stored.extent in extents]
        for message in gone:
            del self.messages[message.sequence]
        self._saw("removed under a lease", [message for message in gone if message.is_out])

    @precondition(lambda self: any(message.is_out for message in self.messages.values()))
    @rule(really=st.sampled_from([False] * 7 + [True]))
    def tarantool_is_killed(self, really: bool) -> None:
        if not really:
            return
        self.world.restart()
        out = [message for message in self.messages.values() if message.is_out]
        self._saw("restarted", out)

    def teardown(self) -> None:
        """In the end all of it can be had and done."""
        if not self.has_begun:
            return
        # After a restart the clock is behind: what was granted before may be due later than any lease lasts from now,
        # also by the seconds that `pass_time` adds.
        due = max((message.due for message in self.messages.values() if message.is_out), default=0)
        self.world.pass_time(max(10, due + due // MINUTE + 1 - self.world.now))
        while True:
            given = self._lease(50, 1)
            if not given:
                break
            self._call("delivery_ack", given[0].lease_id, [message.sequence for message in given])
            for message in given:
                message.finish()
            self.stands_where_the_model_says()
        while self._due():
            self._lease(50, 1)
        assert not any(message.is_out for message in self.messages.values())
        assert not self._fresh(), "something was never handed out"
        self._payloads_have_as_many_references_as_rows()

    # -- what must hold

    @invariant()
    def stands_where_the_model_says(self) -> None:
        look = self._call("durable_look")
        seen = look["consumer"]
        assert seen["next_sequence"] >= self.next_sequence, "what was handed out stays so"
        self.next_sequence = seen["next_sequence"]
        out = [message.sequence for message in self.messages.values() if message.is_out]
        for message in self.messages.values():
            if message.is_new and message.sequence < self.next_sequence:
                assert not self._is_wanted(message), "never handed out, and never will be"
                message.finish()
                self._saw("passed over", [message])
            assert message.sequence < self.next_sequence or message.is_new
        new = [message.sequence for message in self.messages.values() if message.is_new]
        assert seen["outstanding"] == len(out)
        assert seen["lag"] == len(out) + len(new)
        assert sum(lane["lag"] for lane in seen["partitions"]) == len(new)
        assert seen["latest_sequence"] == max(self.messages, default=0)
        assert seen["last_sequence"] == min(out, default=self.next_sequence) - 1
        self._ranges_fit(look, set(out), sorted(self.messages))
        self._ranges_fit(self.world.call("durable_look", self.dead_letters, DURABLE), None, sorted(self.dead))

    def _ranges_fit(self, look: Any, out: set[int] | None, there: list[int]) -> None:
        """Ranges are disjoint, begin and end with messages, and hold those that are out, each once."""
        seen, held = look["consumer"], []
        for row in look["delivery"]:
            inside = [sequence for sequence in there if row[FIRST] <= sequence <= row[LAST]]
            assert (inside[0], inside[-1], len(inside)) == (row[FIRST], row[LAST], row[IN_RANGE])
            held += inside
        assert held == sorted(set(held))
        assert len(held) == seen["outstanding"]
        assert out is None or set(held) == out
        assert seen["last_sequence"] == min(held, default=seen["next_sequence"]) - 1

    def _payloads_have_as_many_references_as_rows(self) -> None:
        names = [message.stored.payload[0] for message in self.messages.values()]
        extents = {(message.stored.extent, message.stored.payload[0]) for message in self.messages.values()}
        pointing = [name for _, name in extents] + [message.payload[0] for message in self.dead.values()]
        for name in set(names):
            (row,) = self.world.call("space_select", "object", [name])
            assert row[1] == pointing.count(name)

    # -- help

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.world.call(name, self.subject, DURABLE, *arguments)

    def _refused(self, name: str, *arguments: Any) -> str:
        return self.world.refusal(name, self.subject, DURABLE, *arguments)

    def _saw(self, what: str, some: Iterable[Any]) -> None:
        self.world.seen[what] += len(list(some))

    def _learn(self) -> list[Stored]:
        """Messages that the model does not know yet: they lie above all that it knows."""
        page = self.world.call("messages_get", self.subject, 1, ALL)
        found = messages_of(page["rows"])
        new = [stored for stored in found if stored.sequence not in self.messages]
        assert [stored.sequence for stored in found] == sorted({*self.messages, *(stored.sequence for stored in new)})
        self.messages.update({stored.sequence: Message(stored) for stored in new})
        return new

    def _learn_dead(self, count: int) -> set[int]:
        """The sequences of messages that were given up since the last look: each is a letter with its payload."""
        page = self.world.call("messages_get", self.dead_letters, 1, ALL)
        letters = messages_of(page["rows"])
        new = [letter for letter in letters if letter.sequence not in self.dead]
        assert len(letters) == len(self.dead) + len(new), "a dead letter is gone"
        origins = {int(letter.header("mts-dlq-sequence") or 0) for letter in new}
        assert len(new) == len(origins) == count
        for letter in new:
            message = self.messages[int(letter.header("mts-dlq-sequence") or 0)]
            assert letter.payload == message.stored.payload
            assert letter.header("mts-dlq-deliveries") == str(message.tries)
            assert {name: value for name, value in letter.headers if not name.startswith("mts-dlq-")} == dict(
                message.stored.headers
            )
            self.dead[letter.sequence] = letter
        return origins

    def _is_wanted(self, message: Message) -> bool:
        return not self.filtered or message.stored.header("colour") == "red"

    def _is_used_up(self, message: Message) -> bool:
        return 0 < self.max_deliver <= message.tries

    def _due(self) -> list[Message]:
        """What may be handed out again; also what was granted in a time that has not come yet."""
        now = self.world.now
        return [one for one in self.messages.values() if one.is_out and (one.due <= now or one.granted > now)]

    def _fresh(self) -> list[Message]:
        return [message for message in self.messages.values() if message.is_new and self._is_wanted(message)]

    def _pick(self, number: int) -> Message:
        messages = list(self.messages.values())
        return messages[number % len(messages)]

    def _of_a_lease(self, pick: int, some: list[int], wrong: str | None) -> tuple[str, list[int]]:
        """A lease and some of what it was given once, in any order; or with something that it was not. Two times of
        three it holds them still."""
        lease_id = self.leases.pick(pick)
        given = self.leases.granted[lease_id]
        if pick % 3:
            held = [message for message in self.messages.values() if message.is_out and message.lease_id]
            lease_id = held[pick % len(held)].lease_id or lease_id if held else lease_id
            given = [message.sequence for message in held if message.lease_id == lease_id] or given
        sequences = [given[number % len(given)] for number in some]
        if wrong == "other":
            sequences.append(given[-1] + 1)
        elif wrong == "beyond":
            sequences.append(10**18)
        return ("nobody" if wrong == "lease" else lease_id), sequences

    def _all_held(self, lease_id: str, sequences: list[int]) -> bool:
        held = [self.messages.get(sequence) for sequence in sequences]
        return all(message is not None and message.is_out and message.lease_id == lease_id for message in held)

    def _begin_at(self, target: int) -> None:
        self.next_sequence = 0
        for message in self.messages.values():
            message.begin_again()
            if message.sequence < target:
                message.finish()


def leases_that_end(machine: SharedMachine) -> Iterator[None]:
    machine.time_passes(7)
    yield
    machine.lease(limit=50, minutes=1)
    yield


def letters(machine: SharedMachine) -> Iterator[None]:
    machine.max_deliver = 1
    machine.made_again(really=True, pick=0)
    yield
    given = machine._lease(3, 1)
    machine._nack(str(given[0].lease_id), [message.sequence for message in given], 0)
    yield
    machine.dead_letters_are_replayed(some=[0])
    yield
    machine.dead_letters_are_purged(limit=1)
    yield


def seeks(machine: SharedMachine) -> Iterator[None]:
    machine.seek(really=True, pick=0, to_the_end=True)
    yield
    machine.seek(really=True, pick=0, to_the_end=False)
    yield


def an_expiry(machine: SharedMachine) -> Iterator[None]:
    machine.made_again(really=True, pick=0)
    machine.lease(limit=50, minutes=1)
    yield
    machine.the_head_expires(really=True, count=1)
    yield


def a_filter(machine: SharedMachine) -> Iterator[None]:
    machine.filtered = True
    machine.made_again(really=True, pick=0)
    machine.publish([1], "blue")
    machine.lease(limit=50, minutes=1)
    yield


def a_kill(machine: SharedMachine) -> Iterator[None]:
    machine.time_passes(2)
    machine.lease(limit=50, minutes=5)
    yield
    machine.tarantool_is_killed(really=True)
    yield


def test_a_shared_durable_follows_its_model(world: World) -> None:
    follow(SharedMachine, (leases_that_end, letters, seeks, an_expiry, a_filter, a_kill), world)
    missing = COVERED - {what for what, count in world.seen.items() if count}
    assert not missing, f"the examples never came to: {missing}"
