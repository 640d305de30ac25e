"""What this process knows of when messages end, so that a pack holds such as end together."""

from __future__ import annotations

from collections import OrderedDict

_SUBJECTS = 10_000


class RetentionClasses:
    """The retention class of subjects, as commits told it. One of which nothing is known counts as the default: a wrong
    guess keeps the bytes of a pack longer, and changes nothing else."""

    def __init__(self, default: str = "") -> None:
        self._default = default
        self._others: OrderedDict[str, str] = OrderedDict()

    def class_of(self, subject: str) -> str:
        return self._others.get(subject, self._default)

    def learn(self, subject: str, told: str | None) -> None:
        """What a commit said of a subject; None when it said nothing."""
        if told is None or told == self._default:
            if told is not None:
                self._others.pop(subject, None)
            return
        self._others[subject] = told
        self._others.move_to_end(subject)
        if len(self._others) > _SUBJECTS:
            self._others.popitem(last=False)
