// Anthropic's JavaScript client.

import Anthropic from '@anthropic-ai/sdk';
import { CITY, QUESTION, TOOL, main, userMessage } from './client.mjs';

const connect = (url) => new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const { name, description, parameters } = TOOL.function;
const tools = [{ name, description, input_schema: parameters }];
const asked = (text) => ({ model: 'scripted', max_tokens: 500, messages: userMessage(text) });

await main({
  async chat(url) {
    return { text: (await connect(url).messages.create(asked(QUESTION))).content[0].text };
  },
  async stream(url) {
    const pieces = [];
    const stream = connect(url).messages.stream(asked(QUESTION));
    stream.on('text', (text) => pieces.push(text));
    await stream.finalMessage();
    return { pieces };
  },
  async tools(url) {
    const client = connect(url);
    const request = asked(CITY);
    const first = await client.messages.create({ ...request, tools });
    const call = first.content.find((block) => block.type === 'tool_use');
    const content = [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }];
    request.messages.push({ role: 'assistant', content: first.content }, { role: 'user', content });
    const second = await client.messages.create({ ...request, tools });
    return { calls: [[call.name, call.input]], text: second.content[0].text };
  },
  async streamed_tools(url) {
    const final = await connect(url).messages.stream({ ...asked(CITY), tools }).finalMessage();
    return { calls: final.content.filter((b) => b.type === 'tool_use').map((b) => [b.name, b.input]) };
  },
});
