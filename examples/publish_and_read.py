"""A first message: publish, look, read. Start a stack with `mts up`, then run this beside it."""

from minitoolstream.client import Client


def main() -> None:
    with Client() as client:
        receipt = client.publish("greetings", "hello", headers={"language": "en"})
        print(f"published as message {receipt.sequence}")

        for message in client.fetch("greetings", start="last").messages:
            text = client.payload(message).decode()
            print(f"{message.sequence}: {text!r} ({message.size} bytes, headers {dict(message.headers)})")


if __name__ == "__main__":
    main()
