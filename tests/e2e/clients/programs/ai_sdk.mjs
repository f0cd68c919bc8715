// Vercel's AI SDK, by @ai-sdk/openai-compatible.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { CITY, PERSON, PERSON_SCHEMA, QUESTION, TOOL, main } from './client.mjs';

const connect = (url) =>
  createOpenAICompatible({ name: 'mlcc', baseURL: `${url}/v1`, supportsStructuredOutputs: true })('scripted');

await main({
  async chat(url) {
    return { text: (await generateText({ model: connect(url), prompt: QUESTION })).text };
  },
  async stream(url) {
    const pieces = [];
    for await (const text of streamText({ model: connect(url), prompt: QUESTION }).textStream) pieces.push(text);
    return { pieces };
  },
  async tools(url) {
    const calls = [];
    const { description, parameters } = TOOL.function;
    const execute = async (input) => {
      calls.push(['lookup', input]);
      return 'sunny';
    };
    const tools = { lookup: tool({ description, inputSchema: jsonSchema(parameters), execute }) };
    const { text } = await generateText({ model: connect(url), prompt: CITY, tools, stopWhen: stepCountIs(3) });
    return { calls, text };
  },
  async structured(url) {
    const schema = jsonSchema(PERSON_SCHEMA);
    return (await generateObject({ model: connect(url), prompt: PERSON, schema })).object;
  },
  async reasoning(url) {
    const { reasoningText, text } = await generateText({ model: connect(url), prompt: 'think hello' });
    return { reasoning: reasoningText, text };
  },
});
