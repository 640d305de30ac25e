"""Both clients take the same: what an example shows of one, works with the other."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from minitoolstream.client import AsyncClient, AsyncTransaction, Client, Transaction
from minitoolstream.client._manage import AsyncConsumers, AsyncDeadLetters, AsyncSubjects
from minitoolstream.client._manage_sync import Consumers, DeadLetters, Subjects
from minitoolstream.client._pipeline import AsyncPipeline, Pipeline
from minitoolstream.client._retention import AsyncRetention, SyncRetention
from minitoolstream.client._subscribing import Subscribing

PAIRS: list[tuple[type, type]] = [
    (Client, AsyncClient),
    (Transaction, AsyncTransaction),
    (Consumers, AsyncConsumers),
    (Subjects, AsyncSubjects),
    (DeadLetters, AsyncDeadLetters),
    (SyncRetention, AsyncRetention),
    (Pipeline, AsyncPipeline),
]


def methods(of: type) -> dict[str, list[inspect.Parameter]]:
    """Names, kinds and defaults of what each public method takes."""
    return {
        name: [one.replace(annotation=None) for one in inspect.signature(method).parameters.values()]
        for name, method in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("ordinary", "asyncio"), PAIRS, ids=lambda one: one.__name__)
def test_both_clients_have_the_same_methods_with_the_same_arguments(ordinary: type, asyncio: type) -> None:
    assert methods(ordinary) == methods(asyncio)


def test_a_subscription_has_the_defaults_that_subscribe_shows() -> None:
    shown = {name: one.default for name, one in inspect.signature(AsyncClient.subscribe).parameters.items()}
    assert {field.name: field.default for field in fields(Subscribing) if field.name != "subject"} == {
        name: default for name, default in shown.items() if name not in ("self", "subject")
    }
