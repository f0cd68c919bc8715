"""OpenAI's Responses API, translated to chat.completions and back: request bodies one way, answers
and events the other. Plain values only; `mlcc.service.protocols.responses` calls it.
"""
