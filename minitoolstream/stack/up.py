"""What `mts up` does: Tarantool, an object store with its bucket, the host; each only when it is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

import minitoolstream
from minitoolstream.bundle import bundled
from minitoolstream.config import Settings, env_name
from minitoolstream.domain.ceiling import BUCKET_IS_AHEAD
from minitoolstream.domain.errors import MtsError
from minitoolstream.options import OPTIONS
from minitoolstream.stack import cassandra, object_store, tarantool
from minitoolstream.stack.console import Console
from minitoolstream.stack.credentials import Secrets, load_or_generate
from minitoolstream.stack.get_cassandra import get_cassandra
from minitoolstream.stack.get_tarantool import get_tarantool
from minitoolstream.stack.http import ask
from minitoolstream.stack.lock import locked
from minitoolstream.stack.places import Place, catalog_node, given, grpc_place, host_place, store_place, tarantool_place
from minitoolstream.stack.ports import listens, reachable
from minitoolstream.stack.private_files import private_folder, write_private
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program
from minitoolstream.stack.state import (
    CATALOG,
    GRPC,
    GRPC_PORTS,
    HOST,
    OBJECT_STORE,
    TARANTOOL,
    WAITING,
    code_stamp,
    load_state,
    log_file,
)
from minitoolstream.stack.supervisor import Supervisor

_KEYSPACE = "mts_catalog"
Load = Callable[[], Settings]


def up(load: Load, console: Console, *, quick: bool = False, catalog: bool = False) -> None:
    """Start what is missing. When a part fails, what this run started is stopped again."""
    home = load().home
    private_folder(home)
    with locked(home / "lock", waiting=lambda: console.say(WAITING)):
        supervisor = Supervisor(home, load_state(home))
        # Written first: it marks the folder as ours, so that `mts down --purge` clears whatever follows.
        supervisor.save()
        secrets = load_or_generate(home)
        try:
            Starter(load, console, supervisor, secrets).run(quick=quick, catalog=catalog)
        except BaseException:
            undone = supervisor.undo()
            if undone:
                console.say(f"  stopped again: {', '.join(undone)}")
            raise


class Starter:
    """Starts parts under the lock of the stack's folder."""

    def __init__(self, load: Load, console: Console, supervisor: Supervisor, secrets: Secrets) -> None:
        self._load = load
        self._console = console
        self._supervisor = supervisor
        self._state = supervisor.state
        self._secrets = secrets

    def run(self, *, quick: bool, catalog: bool) -> None:
        catalog = catalog or self._cassandra_data().exists()
        if catalog:
            cassandra.check_driver()
        host = self._prepare()
        self._tarantool()
        self._object_store(host, quick=quick)
        if catalog:
            self._catalog()
        self._host(host)
        self._grpc()

    def run_store(self) -> None:
        """The object store alone, for a restore."""
        self._object_store(self._prepare(), quick=False)

    def _prepare(self) -> Place:
        self._write_files()
        # Decided first: the object store must know where the host will take its events.
        host = host_place(self._load(), self._state)
        self._state.settings |= {"server.port": host.port, "server.urls": [host.url]}
        if self._grpc_problem() is None:
            for key in GRPC_PORTS:
                self._state.settings[key] = grpc_place(self._load(), self._state, key).port
        return host

    def _grpc_problem(self) -> str | None:
        """Why there are no gRPC servers; None when there are."""
        if not self._load()["grpc.enabled"]:
            return "off: grpc.enabled is false"
        return None if find_spec("grpc") else "not installed: pip install 'minitoolstream[grpc]'"

    def _write_files(self) -> None:
        """The token where a shell finds it (`$(cat .mts/token)`), the password where Tarantool does."""
        settings = self._load()
        for name in ("data", "logs"):
            private_folder(settings.home / name)
        write_private(settings.home / "token", settings.secret("server.token").encode())
        write_private(_password_file(settings), settings.secret("tarantool.password").encode())

    def _tarantool(self) -> None:
        with self._console.step("Tarantool") as step:
            settings = self._load()
            place = tarantool_place(settings, self._state)
            user, password = settings["tarantool.user"], settings.secret("tarantool.password")
            if not place.managed:
                problem = tarantool.login_problem(place.address, user, password, settings["tarantool.timeout"])
                if problem:
                    raise _not_yours("Tarantool", place.address, settings, "tarantool.address", problem)
                self._not_ours(TARANTOOL, "tarantool.address")
                step.done(f"yours at {place.address}, used as it is")
                return
            self._state.settings["tarantool.address"] = place.address
            program = get_tarantool(settings["tarantool.binary"], update=step.update)
            step.update("starting")
            outcome = self._supervisor.ensure(
                TARANTOOL,
                tarantool_launch(settings, program, f"{place.host}:{place.port}"),
                lambda: tarantool.login_problem(place.address, user, password) is None,
                stamp=code_stamp(bundled("tarantool")),
                # It listens only when it has read its snapshot and log, which may be large.
                timeout=600,
            )
            step.done(f"{outcome}, {place.address}")

    def _object_store(self, host: Place, *, quick: bool) -> None:
        with self._console.step("object store") as step:
            settings = self._load()
            place = store_place(settings, self._state)
            webhook = f"{host.url}/hooks/object-created"
            if not place.managed:
                remark = object_store.prepare_external(settings, place.url, webhook)
                self._not_ours(OBJECT_STORE, "minio.endpoint", "object_store.queue_url")
                step.done(f"yours at {place.url}, used as it is" + (f"; {remark}" if remark else ""))
                return
            object_store.check_bucket(settings, self._state)
            choice = object_store.choose(settings, self._state, quick=quick, update=step.update)
            self._state.settings |= {"minio.endpoint": place.url, "object_store.kind": choice.kind}
            step.update("starting")
            outcome = self._supervisor.ensure(
                OBJECT_STORE,
                object_store.launch(choice, settings, self._secrets, place, webhook),
                lambda: object_store.is_ready(choice.kind, place.url),
            )
            step.update("creating the bucket and its notification")
            self._state.bucket = settings["minio.bucket"]
            queue_url = object_store.prepare(choice.kind, settings, self._secrets, place.url)
            if queue_url:
                self._state.settings["object_store.queue_url"] = queue_url
            self._supervisor.save()
            step.done(f"{outcome}, {place.url} ({object_store.MEANING[choice.kind]})")
        if choice.remark:
            self._console.say(f"! {choice.remark}")

    def _cassandra_data(self) -> Path:
        return self._load().home / "data" / "cassandra"

    def _catalog(self) -> None:
        """Once asked for, it is part of the stack, unless the user names a database of his own."""
        with self._console.step("Cassandra") as step:
            settings = self._load()
            if given(settings, "catalog.database"):
                self._not_ours(CATALOG, "catalog.database", "catalog.user")
                step.done(f"yours at {settings['catalog.database']}, used as it is")
                return
            node, password = catalog_node(self._state), settings.secret("catalog.password")
            program = get_cassandra(update=step.update)
            step.update("starting")
            data, log = self._cassandra_data(), log_file(settings.home, CATALOG)
            launch = cassandra.launch(program, node, data=data, log=log)
            outcome = self._supervisor.ensure(CATALOG, launch, lambda: cassandra.is_ready(node), timeout=180)
            cassandra.set_password(node, password)
            url = f"cql://{node.host}:{node.port}/{_KEYSPACE}"
            self._state.settings |= {"catalog.database": url, "catalog.user": cassandra.USER}
            self._supervisor.save()
            step.done(f"{outcome}, {node.host}:{node.port}")

    def _not_ours(self, part: str, *keys: str) -> None:
        """The user's own takes the place of one we started before."""
        self._supervisor.stop(part)
        for key in keys:
            self._state.settings.pop(key, None)

    def _host(self, place: Place) -> None:
        with self._console.step("host") as step:
            step.update("starting")
            self._supervisor.save()
            settings = self._load()
            outcome = self._supervisor.ensure(
                HOST,
                _launch(HOST, "serve", settings, self._state.settings),
                lambda: _is_ready(place.url),
                stamp=_settings_stamp(settings)
                + code_stamp(Path(minitoolstream.__file__).parent, bundled("functions"), bundled("web")),
            )
            step.done(f"{outcome}, {place.url}")

    def _grpc(self) -> None:
        with self._console.step("gRPC") as step:
            problem = self._grpc_problem()
            if problem:
                self._not_ours(GRPC, *GRPC_PORTS)
                step.done(problem)
                return
            step.update("starting")
            settings = self._load()
            places = [Place(settings["server.host"], self._state.settings[key], managed=True) for key in GRPC_PORTS]
            outcome = self._supervisor.ensure(
                GRPC,
                _launch(GRPC, "grpc", settings, self._state.settings),
                lambda: all(listens(reachable(place.host), place.port) for place in places),
                stamp=_settings_stamp(settings) + code_stamp(Path(minitoolstream.__file__).parent),
            )
            step.done(f"{outcome}, ingress {places[0].address}, egress {places[1].address}")


def _is_ready(url: str) -> bool:
    """MtsError when it never will be: Tarantool's folder was lost, and the bucket knows more."""
    answer = ask(f"{url}/readyz")
    parts = answer.body.get("parts", {}) if isinstance(answer.body, dict) else {}
    if BUCKET_IS_AHEAD in str(parts.get("sequences", "")):
        raise MtsError(
            "recovery_conflict",
            f"{BUCKET_IS_AHEAD}: its data was lost, or is an old copy",
            {"hint": "`mts restore` brings it back from the newest backup and the journal, `mts rebuild` without one"},
        )
    return answer.status == 200


def tarantool_launch(settings: Settings, program: Program, address: str) -> Launch:
    return tarantool.launch(
        program,
        address=address,
        data=tarantool_folder(settings.home),
        log=log_file(settings.home, TARANTOOL),
        user=settings["tarantool.user"],
        password_file=_password_file(settings),
        memory=settings["tarantool.memory"],
        wal_mode=settings["tarantool.wal_mode"],
    )


def tarantool_folder(home: Path) -> Path:
    return home / "data" / "tarantool"


def _launch(part: str, command: str, settings: Settings, resolved: dict[str, object]) -> Launch:
    """What was decided here is handed over: a `port: 0` in the environment must not hide it."""
    environ = {env_name(key): str(value) for key, value in resolved.items() if key != "server.urls"}
    return Launch(
        name="the host" if part == HOST else "the gRPC server",
        command=[sys.executable, "-m", "minitoolstream.cli.main", command],
        log=log_file(settings.home, part),
        environ={**environ, "MTS_HOME": str(settings.home.resolve()), "PYTHONUNBUFFERED": "1"},
    )


def _settings_stamp(settings: Settings) -> str:
    values = {option.key: settings[option.key] for option in OPTIONS}
    return msgspec.json.encode(values).decode()


def _password_file(settings: Settings) -> Path:
    return settings.home.resolve() / "tarantool-password"


def _not_yours(what: str, address: str, settings: Settings, key: str, problem: str) -> MtsError:
    return MtsError(
        "unavailable",
        f"{what} at {address} ({key} from {settings.source(key)}) cannot be used: {problem}",
        {
            "hint": f"start it and check {env_name('tarantool.user')} and {env_name('tarantool.password')}; "
            f"or remove {key}, and `mts up` starts one"
        },
    )
