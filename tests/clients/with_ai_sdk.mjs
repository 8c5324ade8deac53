// Drives a server with `ai` and `@ai-sdk/openai-compatible`; prints what came back as one JSON object.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [, , address, model] = process.argv;
const provider = createOpenAICompatible({ name: "lookahead", baseURL: `${address}/v1`, apiKey: "any", includeUsage: true });
const prompt = "Repeat this: one, two, three.";
const options = { maxOutputTokens: 16, maxRetries: 0 };

const chat = await generateText({ model: provider.chatModel(model), prompt, ...options });
const stream = streamText({ model: provider.chatModel(model), prompt, ...options });
let streamed = "";
for await (const piece of stream.textStream) streamed += piece;
const completion = await generateText({
  model: provider.completionModel(model),
  prompt: "one, two, three, one, two,",
  ...options,
});
const error = await generateText({ model: provider.chatModel("other"), prompt, ...options }).catch((refused) => [
  refused.statusCode,
  refused.data.error.code,
]);

console.log(
  JSON.stringify({
    chat: chat.text,
    finishReason: chat.finishReason,
    inputTokens: chat.usage.inputTokens,
    outputTokens: chat.usage.outputTokens,
    streamed,
    streamedFinishReason: await stream.finishReason,
    streamedOutputTokens: (await stream.usage).outputTokens,
    completion: completion.text,
    error,
  }),
);
