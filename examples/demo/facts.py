"""Small facts, known by heart: capitals, opposites, plurals, the calendar, times tables.

A fact cannot be held out as such (nobody can guess a capital), so here the key is the *wording*:
a held-out row asks for something known in a phrasing that training never used.
"""

from __future__ import annotations

import re
from random import Random

import words as w
from compute import Generator, Item

_OPENERS = ("", "", "", "", "", "Please tell me: ", "Hey, ", "Quick question: ", "Pip, ", "So, ")
_CLOSERS = ("", "", "", "", "", " Thanks!", " please", " Please.")


def wording(rng: Random, question: str) -> str:
    """The question with the small variations people type: openers, case, missing marks."""
    if rng.random() < 0.25:
        question = question.rstrip("?.!")
    text = rng.choice(_OPENERS) + question + rng.choice(_CLOSERS)
    return text.lower() if rng.random() < 0.25 else text


def wording_key(question: str) -> str:
    """The question's words; case and punctuation make no other wording."""
    return "wording " + " ".join(re.findall(r"\w+", question.lower()))


def by_wording(rng: Random, task: str, question: str, answer: str) -> Item:
    """An item with small variations of wording, split by what came of it."""
    text = wording(rng, question)
    return Item(task, wording_key(text), text, answer)


def _fact(rng: Random, task: str, asks: str, word: str, answer: str) -> Item:
    return by_wording(rng, task, w.one(rng, asks).format(word), answer)


def capital(rng: Random) -> Item:
    country = rng.choice(tuple(w.CAPITALS))
    asks = (
        "What is the capital of {}?|Capital of {}?|Which city is the capital of {}?"
        "|Name the capital of {}.|What's the capital city of {}?|{}'s capital?"
    )
    return _fact(rng, "capital", asks, country, w.CAPITALS[country])


def country(rng: Random) -> Item:
    name, city = rng.choice(tuple(w.CAPITALS.items()))
    asks = (
        "Which country has the capital {}?|{} is the capital of which country?"
        "|Of which country is {} the capital?|In which country is {}?"
    )
    return _fact(rng, "capital", asks, city, name)


def sound(rng: Random) -> Item:
    animal = rng.choice(tuple(w.SOUNDS))
    asks = "What does the {} say?|Which sound does the {} make?|What sound does the {} make?"
    return _fact(rng, "sound", asks, animal, w.SOUNDS[animal])


def emoji(rng: Random) -> Item:
    thing = rng.choice(tuple(w.EMOJI))
    asks = "Show me a {} emoji.|Emoji for {}?|Give me the {} emoji.|The {} emoji?"
    return _fact(rng, "emoji", asks, thing, w.EMOJI[thing])


def colour(rng: Random) -> Item:
    thing = rng.choice(tuple(w.THING_COLOURS))
    asks = (
        "What colour is {}?|What is the colour of {}?|The colour of {}?|What color is {}?"
        "|Name the colour of {}."
    )
    return _fact(rng, "colour", asks, thing, w.THING_COLOURS[thing])


def opposite(rng: Random) -> Item:
    pair = rng.choice(w.OPPOSITES).split(":")
    rng.shuffle(pair)
    word, answer = pair
    if word == "light":  # of heavy or of dark: ambiguous, so never asked in this direction
        word, answer = answer, word
    asks = (
        "What is the opposite of {}?|Opposite of {}?|Give me the opposite of {}."
        "|What's the opposite of the word {}?|Name the opposite of {}."
    )
    return _fact(rng, "opposite", asks, word, answer)


def plural(rng: Random) -> Item:
    word, answer = rng.choice(w.PLURALS).split(":")
    asks = (
        "What is the plural of {}?|Plural of {}?|Give me the plural of {}.|One {}, two what?"
        "|What's the plural of the word {}?"
    )
    return _fact(rng, "plural", asks, word, answer)


def calendar(rng: Random) -> Item:
    unit, names = rng.choice((("day", w.DAYS), ("month", w.MONTHS)))
    i = rng.randrange(len(names))
    asks = "Which {u} comes {p} {n}?|What {u} is {p} {n}?|Which {u} is {p} {n}?"
    place, step = rng.choice((("after", 1), ("before", -1)))
    ask = w.one(rng, asks).format(u=unit, p=place, n=names[i])
    return by_wording(rng, "calendar", ask, names[(i + step) % len(names)])


def listing(rng: Random) -> Item:
    """Longer replies known by heart: the alphabet, days, months, a times table."""
    n = rng.randint(2, 12)
    what, answer = rng.choice(
        (
            ("the alphabet", " ".join("abcdefghijklmnopqrstuvwxyz")),
            ("the days of the week", ", ".join(w.DAYS)),
            ("the months of the year", ", ".join(w.MONTHS)),
            (f"the {n} times table", ", ".join(str(n * i) for i in range(1, 11))),
            (f"the {n} times table", ", ".join(str(n * i) for i in range(1, 11))),
        )
    )
    asks = "Say {}.|List {}.|Write {}.|Give me {}.|Can you recite {}?|Print {}."
    return _fact(rng, "listing", asks, what, answer)


def times(rng: Random) -> Item:
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    asks = (
        "What is {} times {}?|{} times {}|{} x {}|{} * {}|What is {} * {}?|How much is {} x {}?"
        "|Multiply {} by {}.|{}*{}|What is {} x {}?"
    )
    return by_wording(rng, "times", w.one(rng, asks).format(a, b), f"{a} x {b} = {a * b}")


# The weight is the share of a task in training, on the same scale as compute.COMPUTED.
FACTS: dict[Generator, float] = {
    capital: 1.0,
    country: 0.6,
    sound: 0.4,
    emoji: 0.4,
    colour: 0.4,
    opposite: 0.8,
    plural: 0.6,
    calendar: 0.6,
    listing: 0.6,
    times: 1.2,
}
