"""A process that only publishes or downloads one file with the SDK, so that its memory can be watched.

`python -m bench.sdk_transfer publish SUBJECT FILE` prints the sequence; `... download SEQUENCE FILE`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minitoolstream.client import Client


def main(action: str, what: str, file: str) -> None:
    with Client() as client:
        if action == "publish":
            print(client.publish_file(what, Path(file)).sequence)
        else:
            client.download(int(what), Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
