"""OpenAI's Responses API in the words of chat.completions: a request's body there, its answer and
its events back. Pure translation of plain values; `mlcc.service.protocols.responses` asks.
"""
