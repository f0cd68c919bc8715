"""Tasks with a computed answer: numbers, words, letters, copying, JSON, reading.

Each generator takes a seeded ``Random`` and returns one `Item`. Its ``key`` names the *content* of
the problem, never the wording, so a held-out problem is unseen in any wording. Splitting by key
and joining items to conversations is data.py's; facts and talk are in talk.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import words as w


@dataclass(frozen=True)
class Item:
    """One question with its one right answer.

    ``opening`` are turns (user, assistant) that must come earlier in the same conversation;
    ``system`` is the system prompt the answer depends on.
    """

    task: str
    key: str
    question: str
    answer: str
    opening: tuple[tuple[str, str], ...] = ()
    system: str | None = None


Generator = Callable[[Random], Item]


def _sum_operands(rng: Random) -> tuple[int, int]:
    top = 999 if rng.random() < 0.3 else 99
    return rng.randint(0, top), rng.randint(0, top)


def _sum_key(a: int, b: int) -> str:
    return f"sum {min(a, b)} {max(a, b)}"


def addition(rng: Random) -> Item:
    a, b = _sum_operands(rng)
    ask = w.one(
        rng,
        "What is {} + {}?|{} + {}|{}+{}|{} + {} = ?|What is {} plus {}?|{} plus {}|Add {} and {}."
        "|Calculate {} + {}.|How much is {} + {}?|What's {}+{}?",
    )
    return Item("addition", _sum_key(a, b), ask.format(a, b), f"{a} + {b} = {a + b}")


def subtraction(rng: Random) -> Item:
    a, b = sorted(_sum_operands(rng), reverse=True)
    ask = w.one(
        rng,
        "What is {} - {}?|{} - {}|{}-{}|{} - {} = ?|What is {} minus {}?|{} minus {}"
        "|Calculate {} - {}.|How much is {} - {}?|What's {}-{}?",
    )
    return Item("subtraction", f"difference {a} {b}", ask.format(a, b), f"{a} - {b} = {a - b}")


def word_problem(rng: Random) -> Item:
    a, b = rng.randint(1, 60), rng.randint(1, 39)
    name, thing = w.any_name(rng), rng.choice(("apples", "books", "coins", "shells", "eggs"))
    if rng.random() < 0.5:
        verb = rng.choice(("buys", "finds", "gets"))
        ask = f"{name} has {a} {thing} and {verb} {b} more. How many {thing} does {name} have now?"
        return Item("word_problem", _sum_key(a, b), ask, f"{a} + {b} = {a + b} {thing}")
    a, b = max(a, b), min(a, b)
    verb = rng.choice(("loses", "sells", "gives away"))
    ask = f"{name} has {a} {thing} and {verb} {b}. How many {thing} does {name} have left?"
    return Item("word_problem", f"difference {a} {b}", ask, f"{a} - {b} = {a - b} {thing}")


def compare(rng: Random) -> Item:
    top = rng.choice((99, 999))
    a, b = rng.sample(range(top + 1), 2)
    word, pick = rng.choice((("larger", max), ("bigger", max), ("smaller", min)))
    ask = w.one(
        rng, "Which is {w}, {a} or {b}?|Which number is {w}: {a} or {b}?|What is {w}, {a} or {b}?"
    ).format(w=word, a=a, b=b)
    return Item("compare", f"compare {min(a, b)} {max(a, b)}", ask, f"{pick(a, b)} is {word}.")


def parity(rng: Random) -> Item:
    n = rng.randint(0, 999)
    ask = w.one(rng, "Is {} even or odd?|Is {} odd or even?|Even or odd: {}?").format(n)
    return Item("parity", f"parity {n}", ask, f"{n} is {'odd' if n % 2 else 'even'}.")


def number_words(rng: Random) -> Item:
    n = rng.randint(0, 99) if rng.random() < 0.3 else rng.randint(100, 999)
    ask = w.one(rng, "Write {} in words.|How do you write {} in words?|{} in words")
    return Item("number_words", f"words {n}", ask.format(n), w.in_words(n))


def sort_numbers(rng: Random) -> Item:
    numbers = rng.sample(range(100), rng.randint(3, 6))
    ask = w.one(
        rng, "Sort these numbers: {}|Put these numbers in order: {}|Sort from small to large: {}"
    ).format(rng.choice((", ", ", ", " ")).join(map(str, numbers)))
    ordered = ", ".join(map(str, sorted(numbers)))
    return Item("sort_numbers", f"numbers {ordered}", ask, ordered)


def count_range(rng: Random) -> Item:
    start, length = rng.randint(0, 90), rng.randint(3, 30)
    stop, step = start + length, 1
    if rng.random() < 0.3:
        start, stop, step = stop, start, -1
    ask = w.one(
        rng, "Count from {} to {}.|Please count from {} to {}.|List the numbers from {} to {}."
    ).format(start, stop)
    answer = ", ".join(map(str, range(start, stop + step, step)))
    return Item("count_range", f"range {start} {stop}", ask, answer)


def sort_words(rng: Random) -> Item:
    chosen = rng.sample(w.POOL, rng.randint(3, 5))
    ordered, separator = ", ".join(sorted(chosen)), rng.choice((", ", ", ", " "))
    ask = w.one(
        rng,
        "Sort these words: {}|Sort alphabetically: {}|Put these words in order: {}"
        "|Sort these words alphabetically: {}|Alphabetical order, please: {}",
    )
    return Item("sort_words", f"sort {ordered}", ask.format(separator.join(chosen)), ordered)


def reverse_words(rng: Random) -> Item:
    chosen = rng.sample(w.POOL, rng.randint(2, 6))
    ask = w.one(
        rng,
        "Reverse the order of these words: {}|Reverse these words: {}|Say it backwards: {}"
        "|Reverse the words: {}|Write these words in reverse order: {}",
    ).format(" ".join(chosen))
    return Item("reverse_words", f"reverse {' '.join(chosen)}", ask, " ".join(reversed(chosen)))


def count_words(rng: Random) -> Item:
    chosen = rng.sample(w.POOL, rng.randint(2, 8))
    text = " ".join(chosen)
    ask = w.one(
        rng, "How many words are in: {}|Count the words: {}|How many words are there here: {}"
    )
    return Item("count_words", f"count {text}", ask.format(text), f"{len(chosen)} words")


def nth_word(rng: Random) -> Item:
    chosen = rng.sample(w.POOL, rng.randint(3, 6))
    text = " ".join(chosen)
    place, index = rng.choice((("first", 0), ("second", 1), ("third", 2), ("last", -1)))
    ask = w.one(rng, "What is the {} word of: {}|Give me the {} word: {}|The {} word of: {}")
    return Item("nth_word", f"nth {text}", ask.format(place, text), chosen[index])


def repeat(rng: Random) -> Item:
    pool = (*w.POOL, *w.EMOJI.values(), *w.NAMES)
    if rng.random() < 0.5:
        text = " ".join(rng.choice(pool) for _ in range(rng.randint(1, 8)))
        ask = w.one(rng, "Repeat after me: {}|Say this: {}|Repeat: {}|Copy this: {}")
        return Item("repeat", f"repeat {text}", ask.format(text), text)
    word, times = rng.choice((w.invented_name(rng).lower(), rng.choice(pool))), rng.randint(2, 6)
    ask = w.one(rng, "Say {w} {n} times.|Write {w} {n} times.|Repeat the word {w} {n} times.")
    return Item("repeat", f"times {word}", ask.format(w=word, n=times), " ".join([word] * times))


def spell(rng: Random) -> Item:
    asks = "Spell {}.|Spell the word {}.|How do you spell {}?|Spell: {}|Spell the name {}."
    if rng.random() < 0.4:  # a whole-word token: its letters can be learnt but not inferred
        word = rng.choice(w.POOL)
        ask = w.one(rng, asks).format(word)
        return Item("spell", f"wording {ask.lower()}", ask, "-".join(word.upper()))
    word = w.invented_name(rng)
    ask = w.one(rng, asks).format(word)
    return Item("spell", f"letters {word.lower()}", ask, "-".join(word.upper()))


def reverse_letters(rng: Random) -> Item:
    letters = rng.sample("abcdefghijklmnopqrstuvwxyz", rng.randint(3, 8))
    text = " ".join(letters)
    ask = w.one(rng, "Reverse these letters: {}|Reverse the letters: {}|Letters backwards: {}")
    return Item("reverse_letters", f"letters {text}", ask.format(text), " ".join(letters[::-1]))


def json_person(rng: Random) -> Item:
    name, age, city = w.any_name(rng), rng.randint(5, 95), rng.choice(w.CITIES)
    text = w.one(
        rng,
        "{n} is {a} years old and lives in {c}.|{n} lives in {c} and is {a} years old."
        "|{n}, aged {a}, lives in {c}.|My friend {n} from {c} is {a}.|{n} ({a}) is from {c}.",
    ).format(n=name, a=age, c=city)
    ask = w.one(
        rng,
        "Extract name, age and city as JSON: {}|Turn this into JSON: {}|As JSON: {}"
        "|{} Give me that as JSON.|Convert to JSON with name, age and city: {}",
    ).format(text)
    answer = json.dumps({"name": name, "age": age, "city": city}, ensure_ascii=False)
    return Item("json", f"json {name} {age} {city}", ask, answer)


def json_order(rng: Random) -> Item:
    item, count, price = rng.choice(w.OBJECTS), rng.randint(2, 60), rng.randint(1, 200)
    text = w.one(
        rng,
        "We need {n} of the {i} at {p} euros each.|Order {n} times {i}, {p} euros each."
        "|The {i} costs {p} euros, send {n}.|{n} x {i} for {p} euros each.",
    ).format(i=item, n=count, p=price)
    ask = w.one(
        rng,
        "Extract item, quantity and price as JSON: {}|Turn this order into JSON: {}"
        "|Order as JSON: {}|{} Give me the order as JSON.",
    ).format(text)
    answer = json.dumps({"item": item, "quantity": count, "price": price})
    return Item("json", f"json {item} {count} {price}", ask, answer)


def reading(rng: Random) -> Item:
    """A few sentences of who has what, or who is where, and one question about them."""
    people = {w.any_name(rng) for _ in range(rng.randint(2, 4))}
    names = sorted(people, key=lambda _: rng.random())
    things = rng.sample([f"{c} {o}" for c in w.COLOURS for o in w.OBJECTS[:20]], len(names))
    spots = rng.sample(w.PLACES, len(names))
    i, form = rng.randrange(len(names)), rng.randrange(3)
    if form == 2:
        story = " ".join(f"{n} is in the {s}." for n, s in zip(names, spots, strict=True))
        ask, answer = f"Where is {names[i]}?", f"{names[i]} is in the {spots[i]}."
    else:
        story = " ".join(f"{n} has {w.a(t)}." for n, t in zip(names, things, strict=True))
        ask = f"What does {names[i]} have?" if form == 0 else f"Who has the {things[i]}?"
        answer = f"{names[i]} has {w.a(things[i]) if form == 0 else 'the ' + things[i]}."
    return Item("reading", f"reading {story}", f"{story} {ask}", answer)


# The weight is the share of a task in training: what is harder to learn is shown more often.
COMPUTED: dict[Generator, float] = {
    addition: 3.0,
    subtraction: 3.0,
    word_problem: 1.2,
    compare: 1.0,
    parity: 0.4,
    number_words: 0.6,
    sort_numbers: 1.6,
    count_range: 0.8,
    sort_words: 2.4,
    reverse_words: 1.2,
    count_words: 0.8,
    nth_word: 0.8,
    repeat: 1.0,
    spell: 1.4,
    reverse_letters: 0.8,
    json_person: 1.2,
    json_order: 0.8,
    reading: 1.4,
}
