"""The notations inside tool calls: JSON, Python, XML, and Lark grammars."""
