"""Drives a server with `openai==0.28.1`, the last with the edits call; prints what came back as one JSON object."""

import json
import sys

import openai

openai.api_base = f"{sys.argv[1]}/v1"
openai.api_key = "any"
model = openai.Model.list()["data"][0]["id"]
messages = [{"role": "user", "content": "Repeat this: one, two, three."}]

edit = openai.Edit.create(
    model=model, input="total = 1\nprint(total)\n", instruction="Rename total to amount.", temperature=0
)
chat = openai.ChatCompletion.create(model=model, messages=messages, max_tokens=16)
chunks = list(openai.ChatCompletion.create(model=model, messages=messages, max_tokens=16, stream=True))
completion = openai.Completion.create(model=model, prompt="one, two, three, one, two,", max_tokens=8)
try:
    openai.Edit.create(model=model, input="a", instruction="")
    error = None
except openai.error.InvalidRequestError as refused:
    error = [refused.http_status, refused.code, refused.param]

print(
    json.dumps(
        {
            "edit": edit["choices"][0]["text"],
            "object": edit["object"],
            "total_tokens": edit["usage"]["total_tokens"],
            "chat": chat["choices"][0]["message"]["content"],
            "streamed": "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks),
            "completion": completion["choices"][0]["text"],
            "error": error,
        }
    )
)
