// Drives a server with `@continuedev/openai-adapters`, as the editor extension does; prints what came back.
import { constructLlmApi } from "@continuedev/openai-adapters";

const [, , address, model] = process.argv;
const api = constructLlmApi({ provider: "openai", apiBase: `${address}/v1/`, apiKey: "any" });
const messages = [{ role: "user", content: "Repeat this: one, two, three." }];
const signal = new AbortController().signal;

async function textOf(chunks, pick) {
  let text = "";
  for await (const chunk of chunks) text += chunk.choices[0] ? (pick(chunk.choices[0]) ?? "") : "";
  return text;
}

const chat = await api.chatCompletionNonStream({ model, messages, max_tokens: 16, stream: false }, signal);
// Its autocompletion sends rendered prompts and many stop strings.
const completion = {
  model,
  prompt: "<|im_start|>user\nRepeat this: one, two, three.<|im_end|>\n<|im_start|>assistant\n",
  max_tokens: 16,
  stop: ["<|endoftext|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|file_sep|>", "/src/", "#- coding: utf-8", "```"],
};

console.log(
  JSON.stringify({
    chat: chat.choices[0].message.content,
    streamed: await textOf(
      api.chatCompletionStream({ model, messages, max_tokens: 16, stream: true }, signal),
      (choice) => choice.delta.content,
    ),
    completion: (await api.completionNonStream({ ...completion, stream: false }, signal)).choices[0].text,
    completionStreamed: await textOf(
      api.completionStream({ ...completion, stream: true }, signal),
      (choice) => choice.text,
    ),
  }),
);
