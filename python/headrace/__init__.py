"""headrace: LLM inference on CPUs, in this process.

>>> import headrace
>>> llm = headrace.LLM("smollm2:135m")
>>> llm.generate([{"role": "user", "content": "Hello!"}]).text
"""

from ._answers import Answer, Choice, Piece, Rendered, Score, TokenScore, ToolCall, Usage
from ._bodies import Message, Prompt, Sampling
from ._errors import Error
from ._llm import LLM
from ._transport import AsyncStream, IgnoredFieldWarning, Stream

__all__ = [
    "LLM",
    "Answer",
    "AsyncStream",
    "Choice",
    "Error",
    "IgnoredFieldWarning",
    "Message",
    "Piece",
    "Prompt",
    "Rendered",
    "Sampling",
    "Score",
    "Stream",
    "TokenScore",
    "ToolCall",
    "Usage",
]
