"""The features that every client program tries, and its command line: `program.py URL FEATURE`
tries one and prints the result as JSON."""

import json
import sys

QUESTION = "What is 17 + 25?"
CITY = 'Please call lookup {"city": "Paris"}'
PERSON = "Who is Ada?"
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "its name"}},
            "required": ["city"],
        },
    },
}


def main(functions):
    """Call one of a program's functions, as the command line says."""
    url, feature = sys.argv[1:]
    print(json.dumps(functions[feature](url)))
