"""Drives a server with `litellm`; prints what came back as one JSON object. The address is the argument."""

import json
import sys

import litellm

litellm.suppress_debug_info = True
options = {"api_base": f"{sys.argv[1]}/v1", "api_key": "any", "num_retries": 0}
model = f"openai/{sys.argv[2]}"
messages = [{"role": "user", "content": "Repeat this: one, two, three."}]

chat = litellm.completion(model=model, messages=messages, max_tokens=16, temperature=0, **options)
chunks = list(litellm.completion(model=model, messages=messages, max_tokens=16, temperature=0, stream=True, **options))
completion = litellm.text_completion(
    model=f"text-completion-{model}", prompt="one, two, three, one, two,", max_tokens=8, **options
)
try:
    litellm.completion(model=model, messages=[{"role": "user", "content": "word " * 20_000}], **options)
    error = None
except litellm.ContextWindowExceededError as refused:
    error = [type(refused).__name__, refused.status_code]
except litellm.BadRequestError as refused:
    error = [type(refused).__name__, refused.status_code]

print(
    json.dumps(
        {
            "chat": chat.choices[0].message.content,
            "finish_reason": chat.choices[0].finish_reason,
            "total_tokens": chat.usage.total_tokens,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
            "completion": completion.choices[0].text,
            "error": error,
        }
    )
)
