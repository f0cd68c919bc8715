"""What every client is asked to do, and how its program is called: `program.py URL FEATURE` does
one thing and prints what came of it as JSON.
"""

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
