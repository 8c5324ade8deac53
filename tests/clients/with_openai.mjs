// Drives a server with npm's `openai`; prints what came back as one JSON object. The address is the argument.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "any", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Repeat this: one, two, three." }];

async function streamed(options) {
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 16, stream: true, ...options })) {
    chunks.push(chunk);
  }
  return {
    role: chunks[0].choices[0].delta.role,
    text: chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join(""),
    usages: chunks.map((chunk) => Boolean(chunk.usage)),
    numLastChoices: chunks.at(-1).choices.length,
  };
}

const chat = await client.chat.completions.create({ model, messages, max_tokens: 16 });
const runner = client.chat.completions.stream({ model, messages, max_tokens: 16 });
const completion = await client.completions.create({ model, prompt: "one, two, three, one, two,", max_tokens: 8 });
let completionStreamed = "";
const stream = await client.completions.create({ model, prompt: "one, two, three, one, two,", max_tokens: 8, stream: true });
for await (const chunk of stream) completionStreamed += chunk.choices[0].text;
const error = await client.chat.completions
  .create({ model, messages, n: 2 })
  .catch((refused) => [refused.status, refused.code, refused.param]);

console.log(
  JSON.stringify({
    chat: chat.choices[0].message.content,
    totalTokens: chat.usage.total_tokens,
    streamed: await streamed({}),
    streamedWithUsage: await streamed({ stream_options: { include_usage: true } }),
    helper: await runner.finalContent(),
    completion: completion.choices[0].text,
    completionStreamed,
    error,
  }),
);
