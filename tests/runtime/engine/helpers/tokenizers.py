"""Small tokenizers for the engine's tests."""

from __future__ import annotations

from collections.abc import Sequence

EURO, SMILE = "€".encode(), "😀".encode()

PIECES: list[bytes] = [
    b"",  # special
    b"",  # special
    *(bytes([b]) for b in EURO),
    *(bytes([b]) for b in SMILE),
    SMILE[:2],
    SMILE[2:] + b"a",
    b"x" + EURO[:1],
    EURO,
    "é".encode(),
    b"\xff",
    "\ufffd".encode(),
    b" ",
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"aab",
    b" the",
    b"\n",
]


class ByteTokenizer:
    """Byte-level: the text is the UTF-8 of the pieces' bytes, broken ones as U+FFFD."""

    vocab_size = len(PIECES)

    def decode(self, ids: Sequence[int], /) -> str:
        return b"".join(PIECES[i] for i in ids).decode("utf-8", errors="replace")


class SpaceTokenizer:
    """Like SentencePiece: every word brings its leading space, the first one of a text is cut."""

    words = ("", "▁", "▁a", "b", "▁▁", "ab", "▁b", "c")
    vocab_size = len(words)

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(self.words[i] for i in ids).replace("▁", " ").removeprefix(" ")


class CountingTokenizer(ByteTokenizer):
    """Counts the tokens it is asked to decode."""

    decoded = 0

    def decode(self, ids: Sequence[int], /) -> str:
        self.decoded += len(ids)
        return super().decode(ids)


class ByteFallbackTokenizer:
    """Like SentencePiece with byte fallback: é is a token, other characters are tokens per byte.

    Of a run of byte tokens that is not UTF-8 as a whole, every byte becomes U+FFFD.
    """

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for char in text:
            ids += [0x100 + ord(char)] if char in "aé z" else char.encode()
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        out, run = "", b""
        for i in [*ids, 0x100]:
            if i < 0x100:
                run += bytes([i])
                continue
            try:
                out += run.decode()
            except UnicodeDecodeError:
                out += "\ufffd" * len(run)
            out, run = out + chr(i - 0x100), b""
        return out[:-1]
