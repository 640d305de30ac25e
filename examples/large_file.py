"""Publish a file of any size and get it back. Interrupt it with Ctrl-C and run it again: it goes on.

python examples/large_file.py film.mp4 copy.mp4
"""

import sys

from minitoolstream.client import Client


def show(done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,} bytes", end="", flush=True)


def main(source: str, target: str) -> None:
    with Client() as client:
        receipt = client.publish_file("files", source, progress=show)
        print(f"\npublished as message {receipt.sequence}")
        message = client.download(receipt.sequence or 0, target, progress=show)
        print(f"\n{target} has the same {message.size:,} bytes, SHA-256 {message.sha256}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/large_file.py SOURCE TARGET")
    main(*sys.argv[1:])
