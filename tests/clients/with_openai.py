"""Drives a server with the newest `openai`; prints what came back as one JSON object. The address is the argument."""

import json
import sys

from openai import BadRequestError, NotFoundError, OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="any", max_retries=0)
(model,) = [card.id for card in client.models.list()]
messages = [{"role": "user", "content": "Repeat this: one, two, three."}]
text = "def add(first, second):\n    return first + second\n\n\n" * 4


def streamed_chat(**options):
    chunks = list(client.chat.completions.create(model=model, messages=messages, max_tokens=16, stream=True, **options))
    return {
        "role": chunks[0].choices[0].delta.role,
        "text": "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices),
        "finish_reasons": [choice.finish_reason for chunk in chunks for choice in chunk.choices],
        "usages": [chunk.usage is not None for chunk in chunks],
        "num_tokens": chunks[-1].usage.completion_tokens,
        "num_last_choices": len(chunks[-1].choices),
    }


chat = client.chat.completions.create(model=model, messages=messages, max_tokens=16)
predicted = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": f"Repeat this:\n\n{text}"}],
    prediction={"type": "content", "content": text},
    max_tokens=60,
)
completion = client.completions.create(model=model, prompt=text, max_tokens=24, stop=["\n\n\n"])
by_tokens = client.completions.create(model=model, prompt=[1, 504, 338], max_tokens=4)
stream = client.completions.create(model=model, prompt=text, max_tokens=24, stop=["\n\n\n"], stream=True)
errors = []
for call in (
    lambda: client.chat.completions.create(model=model, messages=messages, n=2),
    lambda: client.chat.completions.create(model="other", messages=messages),
    lambda: client.completions.create(model=model, prompt="word " * 20_000),
):
    try:
        call()
    except (BadRequestError, NotFoundError) as error:
        errors.append([error.status_code, error.code, error.param])

print(
    json.dumps(
        {
            "model": model,
            "chat": chat.choices[0].message.content,
            "finish_reason": chat.choices[0].finish_reason,
            "total_tokens": chat.usage.total_tokens,
            "timings": chat.timings,
            "streamed": streamed_chat(),
            "streamed_with_usage": streamed_chat(stream_options={"include_usage": True}),
            "predicted": predicted.choices[0].message.content,
            "accepted_prediction_tokens": predicted.usage.completion_tokens_details.accepted_prediction_tokens,
            "completion": completion.choices[0].text,
            "completion_streamed": "".join(chunk.choices[0].text for chunk in stream),
            "by_tokens": by_tokens.usage.completion_tokens,
            "errors": errors,
        }
    )
)
