"""MariaDB as a child process: its files, its command, and when it is ready."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from minitoolstream.stack.commands import run
from minitoolstream.stack.ports import listens
from minitoolstream.stack.private_files import write_private
from minitoolstream.stack.processes import Launch
from minitoolstream.stack.program import Program

MIB = 2**20
_DAEMON_FOLDERS = ("sbin", "libexec", "bin")


def create(program: Program, data: Path, log: Path) -> None:
    """The system tables, once. Nobody can log in from another machine, and `first_words` closes the rest."""
    if (data / "mysql").is_dir():
        return
    base = _base(program)
    data.parent.mkdir(parents=True, exist_ok=True)
    command = [str(base / "bin" / "mariadb-install-db"), "--no-defaults", f"--basedir={base}", "--srcdir="]
    command += [f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    run([*command, "--skip-name-resolve", *_as_root()], log=log, environ=program.environ)


def first_words(root_password: str, user: str, password: str, databases: Sequence[str]) -> str:
    """What the server does before it lets anybody in; done again at each start, it changes nothing.

    The user may make and use these databases; a name may be a pattern such as `test\\_%`."""
    lines = [f"ALTER USER root@localhost IDENTIFIED BY '{root_password}'"]
    lines += ["DROP USER IF EXISTS root@'127.0.0.1', root@'::1', ''@localhost"]
    lines += [f"CREATE OR REPLACE USER '{user}'@'%' IDENTIFIED BY '{password}'"]
    lines += [f"GRANT ALL ON `{database}`.* TO '{user}'@'%'" for database in databases]
    return "".join(f"{line};\n" for line in lines)


def launch(program: Program, *, port: int, data: Path, log: Path, words: str, memory: int = 64 * MIB) -> Launch:
    """Passwords go by a file that only its user can read."""
    base = _base(program)
    write_private(data.with_name("first-words.sql"), words.encode())
    return Launch(
        name="MariaDB",
        command=[
            str(program.path),
            "--no-defaults",
            f"--basedir={base}",
            f"--datadir={data}",
            f"--plugin-dir={base}/lib/mysql/plugin",
            f"--lc-messages-dir={base}/share/mysql",
            f"--init-file={data.with_name('first-words.sql')}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            f"--innodb-buffer-pool-size={memory}",
            "--innodb-log-file-size=16M",
            *_as_root(),
        ],
        log=log,
        environ=program.environ,
    )


def is_ready(port: int) -> bool:
    """It listens when its first words are said."""
    return listens("127.0.0.1", port)


def _base(program: Program) -> Path:
    """`usr` of an installation: the server is a folder below it."""
    assert program.path.parent.name in _DAEMON_FOLDERS
    return program.path.resolve().parent.parent


def _as_root() -> list[str]:
    """Else it refuses to run as root, as in a container."""
    return ["--user=root"] if os.geteuid() == 0 else []
