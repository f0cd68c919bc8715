"""A grammar over the toy's tokens: small, exact, with all the behaviour of a real one."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

from mlcc.engine.batch.adjustments import mask_of

END = 0


class ToyGrammar:
    """The allowed tokens depend, by a hash, on `seed` and the last token: several tokens, one
    forced token, the end too, or only the end. After `fails_after` tokens it fails."""

    def __init__(self, seed: int, vocab_size: int, fails_after: int | None = None) -> None:
        self._seed, self._vocab_size, self._fails_after = seed, vocab_size, fails_after
        self.output: list[int] = []

    def following(self) -> set[int]:
        """Tokens that may follow, END if that may be all."""
        last = self.output[-1] if self.output else -1
        draw = random.Random(self._seed * 1000 + last)
        kind = draw.choices(("many", "forced", "end", "nothing"), (6, 6, 3, 1))[0]
        tokens = {draw.randrange(1, self._vocab_size) for _ in range(9 if kind != "forced" else 1)}
        if kind == "nothing" and self.output:
            return {END}
        return tokens | {END} if kind == "end" else tokens

    @property
    def ended(self) -> bool:
        return self.following() == {END}

    dead_end = False

    @property
    def failed(self) -> bool:
        return self._fails_after is not None and len(self.output) >= self._fails_after

    def allowed(self) -> array[int]:
        return mask_of({END} if self.failed else self.following(), self._vocab_size)

    def accept(self, token: int) -> None:
        assert token in self.following(), f"{token} after {self.output}"
        self.output.append(token)

    def lookahead(self, tokens: Sequence[int]) -> list[array[int]]:
        """The masks behind the tokens, one by one, as far as they may follow."""
        ahead = ToyGrammar(self._seed, self._vocab_size, self._fails_after)
        masks: list[array[int]] = []
        ahead.output = [*self.output]
        for token in tokens:
            if ahead.failed or token == END or token not in ahead.following():
                break
            ahead.output.append(token)
            masks.append(ahead.allowed())
        return masks

    def forced(self) -> Sequence[int]:
        """The tokens that must follow, up to the first choice."""
        ahead = ToyGrammar(self._seed, self._vocab_size, self._fails_after)
        ahead.output = [*self.output]
        while not ahead.failed and len(only := ahead.following()) == 1 and END not in only:
            ahead.output += only
            if len(ahead.output) - len(self.output) > 7:  # they may go round
                break
        return ahead.output[len(self.output) :]
