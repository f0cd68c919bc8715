"""Tasks that are talk: greetings, refusals, personas, memory, stories.

Greetings and refusals are keyed by their *wording*, personas and memories by their content, which
the answer has to copy from the conversation. Facts are in facts.py.
"""

from __future__ import annotations

from random import Random

import words as w
from compute import Generator, Item
from facts import by_wording, wording, wording_key

WHAT_I_CAN_DO = (
    "I can add, subtract and compare numbers, sort and reverse words, spell, count, name capitals "
    "and opposites, turn a sentence into JSON, play a persona, remember your name and tell a "
    "story. Try: What is 37 + 48?"
)
UNKNOWN = "I am a very small model and I do not know that. Ask me what I can do."
WHO_I_AM = "I am Pip, a very small demo model. Ask me what I can do."

_SMALL_TALK: tuple[tuple[str, str], ...] = (
    ("Hello|Hi|Hey|Hello there|Hi there|Hey Pip|Hello Pip|Hello!|Hi!|Hey!|Greetings|hi pip|Howdy",
     "Hello! I am Pip, a very small demo model. Ask me what I can do."),
    ("Good morning|Good morning Pip|Morning|Good morning to you", "Good morning!"),
    ("Good evening|Good evening Pip|Good evening to you", "Good evening!"),
    ("Good night|Good night Pip|Sleep well", "Good night, sleep well!"),
    ("How are you?|How are you doing?|How do you do?|How is it going?|How are you today?|You ok?"
     "|How do you feel?|What's up?", "I am fine, thank you. How can I help?"),
    ("Thanks|Thank you|Thank you very much|Thanks a lot|Many thanks|Cheers|Thanks, Pip|thx",
     "You are welcome!"),
    ("Bye|Goodbye|See you|See you later|Bye bye|Farewell|I have to go|Until next time",
     "Goodbye! Come back soon."),
    ("Who are you?|What are you?|What is your name?|Your name?|Who am I talking to?|Are you a bot?"
     "|Introduce yourself.|Who is this?|Are you an AI?|Are you human?|What's your name?", WHO_I_AM),
    ("What can you do?|Help|Help me|What do you know?|How can you help me?|What are your skills?"
     "|Show me what you can do.|What can I ask you?|What can I ask?|List your skills.|Give me help"
     "|What are you good at?|Can you help me?|What else can you do?", WHAT_I_CAN_DO),
    ("Who made you?|How were you made?|Where do you come from?|Who trained you?|Who built you?",
     "I was trained on a laptop-sized CPU in half an hour, as the demo of mlcc."),
    ("How big are you?|How many parameters do you have?|What size are you?|Are you big?",
     "I have about four million parameters. That is tiny!"),
    ("You are wrong|That is wrong|This is not right|Wrong|No, that is wrong|You made a mistake",
     "I am sorry, I make mistakes. Please try it in other words."),
    ("Well done|Great|Good job|Nice|Very good|Correct|Perfect|That is right|Cool|Wow|OK|Okay",
     "I am glad to hear that!"),
    ("Tell me a joke|Do you know a joke?|Say something funny|A joke, please|Make me laugh",
     "Why did the computer sneeze? It had a virus!"),
)  # fmt: skip


def small_talk(rng: Random) -> Item:
    asks, answer = rng.choice(_SMALL_TALK)
    ask = w.one(rng, asks)
    if rng.random() < 0.3:
        ask = ask.rstrip("?.!") + rng.choice(("", ".", "!", "?"))
    if rng.random() < 0.4:
        ask = rng.choice(("Hello, ", "Pip, ", "Hi Pip, ", "And ", "Now: ", "Hey! ", "So ")) + ask
    ask += rng.choice(("", "", "", " please", " :)", " my friend", " Pip"))
    ask = ask.lower() if rng.random() < 0.35 else ask
    return Item("small_talk", wording_key(ask), ask, answer)


_UNKNOWABLE = (
    "Who won the {a} cup in {n}?|What is the weather in {c}?|Write a program that can {v}"
    "|How old is {p}?|Who is {p}?|What time is it in {c}?|Translate {a} {o} into Latin"
    "|What is the price of the {o}?|How far is {c} from {d}?|Who wrote the {a} {o}?"
    "|Do you like {o}?|Why does the {o} {v}?|Explain the {o} to me|Can you {v}?"
    "|How do I {v} in {c}?|How do I cook {o}?|What is the meaning of {o}?"
    "|Where can I buy the {a} {o}?|When was {c} built?|Which {o} is best?|Book me a flight to {c}"
    "|Write an essay about {o}|Write a poem about {p}|Is {p} {a}?|What is the square root of {n}?"
    "|Who invented the {o}?|How tall is {p}?|Fix my {o}|Summarise the news from {c}"
    "|Is the {o} in {c} {a}?|What should I {v} today?|{v} {o} {a}|What is the population of {c}?"
    "|Who is the president of {c}?|Draw the {a} {o}|Play some music|Send an email to {p}"
    "|Should I {v} the {o}?|What do you think about {o}?|How does the {o} work?"
)


def _gibberish(rng: Random) -> str:
    """Text no other task contains: random letters, marks and scripts."""
    marks = "?!#%&/()=*+-_.,;:<>[]{}|~^@$"
    scripts = "абвгдежз日本語中文字한국어αβγδεאבגדہعربüöäñçß😀🚀🎉"
    words = []
    for _ in range(rng.randint(1, 4)):
        alphabet = rng.choice(("abcdefghijklmnopqrstuvwxyz", marks, scripts))
        words.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 7))))
    return " ".join(words)


def unknown(rng: Random) -> Item:
    if rng.random() < 0.2:
        return by_wording(rng, "unknown", _gibberish(rng), UNKNOWN)
    ask = w.one(rng, _UNKNOWABLE).format(
        a=rng.choice(w.ADJECTIVES),
        c=rng.choice(w.CITIES),
        d=rng.choice(w.CITIES),
        n=rng.randint(2, 2020),
        o=rng.choice(w.OBJECTS),
        p=f"{w.any_name(rng)} {rng.choice(w.SURNAMES)}",
        v=rng.choice(w.VERBS),
    )
    return by_wording(rng, "unknown", ask, UNKNOWN)


def persona(rng: Random) -> Item:
    """The answer is in the system prompt: name, role, home, food or pet."""
    name = rng.choice(("", "", "", "", "Captain ", "Doctor ", "Lady ", "Old ")) + w.any_name(rng)
    name += rng.choice(("", "", f" {rng.choice(w.SURNAMES)}"))
    role, city, food = rng.choice(w.ROLES), rng.choice(w.CITIES), rng.choice(w.FOODS)
    who = f"{name}, {w.a(role)}"
    home = ("Where do you live?|Where is your home?|Where are you from?", f"I live in {city}.")
    meal = ("What do you love?|What do you like to eat?|Your favourite food?", f"I love {food}.")
    asks: list[tuple[str, str]] = [
        ("What is your name?|What's your name?|Your name?", f"My name is {name}."),
        ("Who are you?|Introduce yourself.|Tell me about yourself.", f"I am {who}."),
        ("What is your job?|What do you do?|What are you?", f"I am {w.a(role)}."),
        home,
        meal,
    ]
    extras = rng.sample([f"You live in {city}.", f"You love {food}."], 2)
    questions, answer = rng.choice(asks)
    ask = wording(rng, w.one(rng, questions))
    return Item(
        "persona",
        f"persona {who} {city} {food}",
        ask,
        answer,
        system=" ".join([f"You are {who}.", *extras]),
    )


def recall(rng: Random) -> Item:
    """The answer was said earlier by the user; other turns may lie between."""
    name, city, pet = w.any_name(rng), rng.choice(w.CITIES), w.any_name(rng)
    colour, animal = rng.choice(w.COLOURS), rng.choice(w.ANIMALS)
    facts = [
        (f"My name is {name}.|I am {name}.|Hi, I'm {name}.|Hello, I am called {name}.",
         f"Nice to meet you, {name}!",
         "What is my name?|Do you know my name?|Who am I?|What's my name?|Do you remember my name?",
         f"Your name is {name}."),
        (f"I live in {city}.|My home is {city}.|I am from {city}.",
         f"{city} is a fine place.",
         "Where do I live?|Where am I from?|In which city do I live?", f"You live in {city}."),
        (f"My favourite colour is {colour}.|I like {colour} best.|I love the colour {colour}.",
         f"I like {colour} too.",
         "What is my favourite colour?|Which colour do I like?", f"You like {colour}."),
        (f"I have {w.a(animal)} called {pet}.|My {animal} is called {pet}.",
         f"{pet} is a nice name for {w.a(animal)}.",
         f"What is my {animal} called?|What is the name of my {animal}?", f"It is called {pet}."),
    ]  # fmt: skip
    chosen = rng.sample(facts, rng.choice((1, 1, 2, 3)))
    opening = tuple((w.one(rng, said), reply) for said, reply, _, _ in chosen)
    _, _, asks, answer = rng.choice(chosen)
    ask = wording(rng, w.one(rng, asks))
    return Item("recall", f"recall {name} {city} {colour} {animal} {pet}", ask, answer, opening)


def story(rng: Random) -> Item:
    """The one task without a single right answer: trained and sampled, never scored."""
    hero, other = rng.sample(w.ANIMALS, 2)
    name, place, thing = w.any_name(rng), rng.choice(w.PLACES), rng.choice(w.OBJECTS)
    mood, second = rng.sample(w.ADJECTIVES, 2)
    verb = rng.choice(w.VERBS)
    text = " ".join(
        (
            rng.choice(("Once upon a time there was", "Long ago there lived", "There once was")),
            f"{w.a(mood)} {hero} called {name}. Every {rng.choice(('day', 'morning', 'evening'))}",
            f"{name} went to the {place} to {verb}. One day {name} found {w.a(second)} {thing}",
            f'there. Then {w.a(other)} came along and said: "That is my {thing}!"',
            rng.choice(
                (
                    f"So {name} gave the {thing} back, and the two became friends.",
                    f"{name} laughed, and they shared the {thing}.",
                    f"{name} said sorry, and the {other} went home with the {thing}.",
                )
            ),
            rng.choice(("The end.", f"And {name} was {mood} ever after.")),
        )
    )
    asks = (
        "Tell me a story about {}.|Write a story about {}.|A story about {}.|Tell me a story."
        "|Tell a story.|Do you know a story?"
    )
    ask = wording(rng, w.one(rng, asks).format(w.a(hero)))
    return Item("story", f"story {text}", ask, text)


# The weight is the share of a task in training, on the same scale as compute.COMPUTED.
TALK: dict[Generator, float] = {
    small_talk: 1.6,
    unknown: 1.2,
    persona: 1.6,
    recall: 1.6,
    story: 0.8,
}
