"""The word lists and small facts the demo tasks draw from.

Plain data and three helpers; no task and no wording. Lists are written as split strings because
that is how they are read and extended.
"""
# ruff: noqa: SIM905

from __future__ import annotations

from random import Random

ANIMALS = (
    "cat dog cow sheep duck horse pig lion mouse owl frog bee goat hen wolf bear fox rabbit tiger "
    "camel whale otter swan crow snake turtle parrot monkey donkey eagle"
).split()

COLOURS = "red blue green yellow black white brown grey pink purple orange golden silver".split()

OBJECTS = (
    "ball hat book lamp chair table cup plate spoon clock key door window basket bottle candle "
    "carpet coin drum flute kite ladder mirror needle pencil piano ring rope shoe umbrella violin "
    "wheel apple banana bread butter cheese cherry lemon melon onion pear pepper potato sugar tea"
).split()

PLACES = (
    "garden kitchen forest river market school tower harbour island castle village bridge library "
    "mountain meadow beach cellar station theatre valley"
).split()

VERBS = "jump run sing sleep swim walk write read cook dance dream fly laugh listen wait".split()

ADJECTIVES = (
    "happy quiet brave clever gentle hungry lazy proud quick silent strong tired warm young bright "
    "calm deep early fresh heavy kind late narrow old polite rough sharp tall wide wise"
).split()

NATURE = (
    "cloud desert fire flower grass ice leaf moon ocean rain sand snow star stone storm sun tree "
    "wind winter summer autumn spring night morning evening thunder shadow island earth water"
).split()

POOL = sorted({*ANIMALS, *COLOURS, *OBJECTS, *PLACES, *VERBS, *ADJECTIVES, *NATURE})

NAMES = (
    "Ada Alan Alice Amir Anna Ben Bruno Carla Chen David Diego Elena Emma Eva Felix Finn Grace "
    "Hana Hugo Ida Igor Ines Ivan Jack Jana Joan José Julia Kai Karl Lara Leo Lina Lucy Luis Maja "
    "Maria Mark Max Mia Mila Nadia Nick Nina Noah Nora Olga Omar Oscar Otto Paul Peter Priya Rosa "
    "Ruth Sam Sara Sofia Tara Theo Tim Tom Uma Vera Victor Yara Yuki Zoë Béla Jörg Renée Øyvind"
).split()

SURNAMES = (
    "Flint Hollow Marsh Rivers Stone Wood Hill Fox Lake Field Brook Snow Bell Hart Frost Moss"
).split()

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "England": "London",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Poland": "Warsaw",
    "Austria": "Vienna",
    "Hungary": "Budapest",
    "Greece": "Athens",
    "Turkey": "Ankara",
    "Russia": "Moscow",
    "Ukraine": "Kyiv",
    "Belgium": "Brussels",
    "Iceland": "Reykjavik",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Thailand": "Bangkok",
    "Vietnam": "Hanoi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Morocco": "Rabat",
    "Nigeria": "Abuja",
    "Ghana": "Accra",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Cuba": "Havana",
    "Brazil": "Brasília",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Argentina": "Buenos Aires",
    "Colombia": "Bogotá",
    "Australia": "Canberra",
    "New Zealand": "Wellington",
}
CITIES = sorted(
    {*CAPITALS.values(), "Munich", "Porto", "Lyon", "Milan", "Seville", "Kraków", "Zürich", "Osaka"}
)

SOUNDS = {
    "cat": "meow",
    "dog": "woof",
    "cow": "moo",
    "sheep": "baa",
    "duck": "quack",
    "horse": "neigh",
    "pig": "oink",
    "lion": "roar",
    "mouse": "squeak",
    "owl": "hoot",
    "frog": "croak",
    "bee": "buzz",
    "hen": "cluck",
    "wolf": "howl",
    "snake": "hiss",
    "crow": "caw",
}

EMOJI = {
    "cat": "🐱",
    "dog": "🐶",
    "cow": "🐮",
    "pig": "🐷",
    "lion": "🦁",
    "frog": "🐸",
    "bee": "🐝",
    "fox": "🦊",
    "bear": "🐻",
    "owl": "🦉",
    "whale": "🐳",
    "apple": "🍎",
    "banana": "🍌",
    "lemon": "🍋",
    "sun": "☀️",
    "moon": "🌙",
    "star": "⭐",
    "fire": "🔥",
    "tree": "🌳",
    "flower": "🌸",
}

THING_COLOURS = {
    "a banana": "yellow",
    "a lemon": "yellow",
    "the sun": "yellow",
    "snow": "white",
    "milk": "white",
    "grass": "green",
    "a frog": "green",
    "a cucumber": "green",
    "a tomato": "red",
    "a cherry": "red",
    "blood": "red",
    "the sky": "blue",
    "the ocean": "blue",
    "coal": "black",
    "a crow": "black",
    "a carrot": "orange",
    "a pumpkin": "orange",
    "chocolate": "brown",
    "an elephant": "grey",
    "a flamingo": "pink",
}

OPPOSITES = (
    "hot:cold big:small fast:slow up:down left:right open:closed day:night black:white young:old "
    "happy:sad wet:dry light:dark high:low early:late hard:soft full:empty rich:poor strong:weak "
    "good:bad near:far in:out clean:dirty loud:quiet thick:thin wide:narrow first:last true:false "
    "long:short begin:end win:lose buy:sell push:pull love:hate heavy:light front:back"
).split()

PLURALS = (
    "mouse:mice child:children man:men woman:women foot:feet tooth:teeth goose:geese person:people "
    "sheep:sheep wolf:wolves leaf:leaves knife:knives city:cities baby:babies berry:berries "
    "box:boxes bus:buses dish:dishes fox:foxes potato:potatoes tomato:tomatoes cat:cats dog:dogs "
    "book:books tree:trees car:cars house:houses key:keys star:stars lamp:lamps"
).split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()

ROLES = (
    "pirate wizard detective gardener baker astronaut doctor knight painter sailor robot teacher "
    "farmer poet dragon ghost tailor pilot chef librarian"
).split()
FOODS = "soup bread cheese pancakes honey rice noodles pizza plums cake figs porridge".split()

UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()

_ONSETS = "b br ch d dr f fl g gr h j k kl l m n p pr r s sh st t th tr v w z".split()
_VOWELS = "a e i o u ai ee oo ou".split()
_CODAS = "- - - l n r s t m nd rk x".split()


def invented_name(rng: Random) -> str:
    """A pronounceable name nobody has, so that it can only be answered by copying it."""
    syllables = rng.choice((2, 2, 2, 3))
    text = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables))
    return (text + rng.choice(_CODAS).strip("-")).capitalize()


def any_name(rng: Random) -> str:
    """A common first name or an invented one, half and half."""
    return rng.choice(NAMES) if rng.random() < 0.5 else invented_name(rng)


def one(rng: Random, choices: str) -> str:
    """One of the choices, which are separated by ``|``."""
    return rng.choice(choices.split("|"))


def a(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def in_words(number: int) -> str:
    """``342`` -> ``three hundred and forty-two``; 0 to 999."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        tens, unit = divmod(number, 10)
        return TENS[tens] + (f"-{UNITS[unit]}" if unit else "")
    hundreds, rest = divmod(number, 100)
    return f"{UNITS[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
