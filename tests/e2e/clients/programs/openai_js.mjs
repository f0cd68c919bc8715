// OpenAI's JavaScript client.

import OpenAI from 'openai';
import { CITY, PERSON, PERSON_SCHEMA, QUESTION, TOOL, main, userMessage } from './client.mjs';

const connect = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const model = 'scripted';

await main({
  async chat(url) {
    const answer = await connect(url).chat.completions.create({ model, messages: userMessage(QUESTION) });
    return { text: answer.choices[0].message.content };
  },
  async stream(url) {
    const pieces = [];
    const chunks = await connect(url).chat.completions.create({ model, messages: userMessage(QUESTION), stream: true });
    for await (const chunk of chunks) pieces.push(chunk.choices[0]?.delta.content ?? '');
    return { pieces };
  },
  async tools(url) {
    const client = connect(url);
    const messages = userMessage(CITY);
    const tools = [TOOL];
    const { message } = (await client.chat.completions.create({ model, messages, tools })).choices[0];
    const call = message.tool_calls[0];
    messages.push(message, { role: 'tool', tool_call_id: call.id, content: 'sunny' });
    const answer = await client.chat.completions.create({ model, messages, tools });
    const calls = [[call.function.name, JSON.parse(call.function.arguments)]];
    return { calls, text: answer.choices[0].message.content };
  },
  async streamed_tools(url) {
    const stream = connect(url).chat.completions.stream({ model, messages: userMessage(CITY), tools: [TOOL] });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    return { calls: message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]) };
  },
  async structured(url) {
    const response_format = { type: 'json_schema', json_schema: { name: 'Person', strict: true, schema: PERSON_SCHEMA } };
    const answer = await connect(url).chat.completions.create({ model, messages: userMessage(PERSON), response_format });
    return JSON.parse(answer.choices[0].message.content);
  },
  async responses(url) {
    const client = connect(url);
    const tools = [{ type: 'function', ...TOOL.function, strict: false }];
    const first = await client.responses.create({ model, input: QUESTION });
    const second = await client.responses.create({ model, input: CITY, previous_response_id: first.id, tools });
    const call = second.output.find((item) => item.type === 'function_call');
    const input = [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny' }];
    const third = await client.responses.create({ model, input, previous_response_id: second.id, tools });
    return { first: first.output_text, calls: [[call.name, JSON.parse(call.arguments)]], text: third.output_text };
  },
});
