/** Conversations: the tree, storage by several tabs, and files. */

import { expect, test } from 'vitest';
import {
  AttachmentError,
  readAttachment,
  withAttachments,
} from '../../page/conversation/attachments.js';
import {
  Conversation,
  type Message,
  type StoredConversation,
} from '../../page/conversation/conversation.js';
import { exported, imported, isStored } from '../../page/conversation/conversation_json.js';
import { MemoryConversationStore } from '../../page/conversation/conversation_store.js';
import { Library } from '../../page/conversation/library.js';
import { requestOf } from '../../page/conversation/request.js';
import { Sentences } from '../../page/conversation/sentences.js';
import {
  DEFAULTS,
  faultOf,
  readSettings,
  requestFields,
  type Settings,
  saveSettings,
} from '../../page/settings/settings.js';
import type { TextStore } from '../../page/settings/storage.js';
import { storageOr } from '../../page/settings/storage.js';

class MapStore implements TextStore {
  readonly values = new Map<string, string>();
  getItem = (key: string) => this.values.get(key) ?? null;
  setItem = (key: string, value: string) => void this.values.set(key, value);
  removeItem = (key: string) => void this.values.delete(key);
}

const words = ({ messages }: Conversation) => messages.map(({ content }) => content);

/** A complete answer. */
function answer(conversation: Conversation, content: string): Message {
  return Object.assign(conversation.answer('m'), { content, end: 'stop' });
}

function talk(): Conversation {
  const conversation = new Conversation();
  conversation.ask('Why?');
  answer(conversation, 'Because.');
  conversation.ask('And now?');
  answer(conversation, 'Well.');
  return conversation;
}

test('an edited question is a sibling of the first, each with its descendants', () => {
  const conversation = talk();
  const [, , second] = conversation.messages as [Message, Message, Message];
  conversation.goTo(second.parent);
  const edited = conversation.ask('And then?');
  answer(conversation, 'Then that.');
  expect(words(conversation)).toEqual(['Why?', 'Because.', 'And then?', 'Then that.']);
  expect(conversation.siblingIndex(edited)).toEqual({ index: 1, count: 2 });
  conversation.showSibling(edited, -1);
  expect(words(conversation)).toEqual(['Why?', 'Because.', 'And now?', 'Well.']);
  conversation.showSibling(edited, 5);
  expect(words(conversation)).toEqual(['Why?', 'Because.', 'And now?', 'Well.']); // the last sibling
});

test('an answer that was stored while it was running is interrupted', () => {
  const conversation = new Conversation();
  conversation.ask('Why?');
  conversation.answer('m').content = 'Be';
  const after = new Conversation(conversation.snapshot());
  expect(after.last).toMatchObject({ content: 'Be', end: 'interrupted' });
});

test('the title is the beginning of the first question until it is set', () => {
  const conversation = new Conversation();
  expect(conversation.title).toBe('New chat');
  conversation.ask(`${'long '.repeat(40)}`);
  expect(conversation.title).toHaveLength(60);
  conversation.rename(' Mine ');
  expect(conversation.title).toBe('Mine');
});

test('two tabs that save one conversation lose no messages', async () => {
  const store = Promise.resolve(new MemoryConversationStore());
  const [one, two] = [new Library(store, null, () => {}), new Library(store, null, () => {})];
  const here = talk();
  await one.save(here);
  const there = new Conversation(await two.get(here.id));
  const last = here.last?.id ?? null;
  here.ask('Here?');
  answer(here, 'Here.');
  there.goTo(last);
  there.ask('There?');
  const writing = there.answer('m');
  writing.content = 'The';
  await one.save(here);
  await two.save(there);
  expect(words(there).at(-2)).toBe('There?'); // the shown path is unchanged
  here.merge((await one.get(here.id)) as StoredConversation);
  Object.assign(writing, { content: 'There.', end: 'stop' });
  await two.save(there);
  await one.save(here);
  const kept = (await one.get(here.id)) as StoredConversation;
  const contents = kept.messages.map(({ content }) => content);
  expect(contents.toSorted()).toEqual(
    ['And now?', 'Because.', 'Here.', 'Here?', 'There.', 'There?', 'Well.', 'Why?'].toSorted(),
  );
});

test('a conversation deleted by another tab stays deleted, and a refused question is not stored', async () => {
  const store = Promise.resolve(new MemoryConversationStore());
  const [one, two] = [new Library(store, null, () => {}), new Library(store, null, () => {})];
  const conversation = talk();
  await one.save(conversation);
  const question = conversation.ask('Too long?');
  await one.save(conversation);
  conversation.drop(question);
  await one.save(conversation);
  expect((await one.get(conversation.id))?.messages).toHaveLength(4);
  await two.remove(conversation.id);
  await one.save(conversation);
  expect(await two.list()).toEqual([]);
});

test('search finds all words, in titles and texts, in any case', async () => {
  const library = new Library(Promise.resolve(new MemoryConversationStore()), null, () => {});
  const conversation = talk();
  conversation.rename('Causes');
  await library.save(conversation);
  const found = async (text: string) => (await library.list(text)).map(({ title }) => title);
  expect(await found('')).toEqual(['Causes']);
  expect(await found('BECAUSE cause')).toEqual(['Causes']);
  expect(await found('because whale')).toEqual([]);
  await library.rename(conversation.id, 'Whales');
  expect(await found('because whale')).toEqual(['Whales']);
});

test('an export is imported unchanged, beside existing conversations', async () => {
  const library = new Library(Promise.resolve(new MemoryConversationStore()), null, () => {});
  const conversation = talk();
  await library.save(conversation);
  const file = exported(await library.all());
  const back = imported(file);
  expect(back).toEqual(await library.all());
  await library.add(back);
  const all = await library.all();
  expect(all).toHaveLength(2);
  expect(all[0]?.messages).toEqual(all[1]?.messages);
});

test.each([
  ['no JSON', 'no JSON'],
  ['{}', 'not exported by this page'],
  ['null', 'not exported by this page'],
  ['{"kind":"mlcc conversations","version":2}', 'version 2'],
  ['{"kind":"mlcc conversations","version":1}', 'lists no conversations'],
  ['{"kind":"mlcc conversations","version":1,"conversations":[{}]}', 'conversation 1'],
])('%s is no export', (text, why) => {
  expect(() => imported(text)).toThrow(why);
});

/** An imported image is in the file: the page loads none from another host. */
const ELSEWHERE = { name: 'a.png', url: 'https://h.example/a.png', width: 1, height: 1 };

test.each([
  { leaf: 'nobody' },
  { messages: [{ id: 'a', parent: 'a', role: 'user', content: '' }], leaf: 'a' },
  { messages: [{ id: 'a', parent: null, role: 'system', content: '' }], leaf: 'a' },
  { messages: [{ id: 'a', parent: null, role: 'user', content: 1 }], leaf: 'a' },
  { messages: [{ id: 'a', parent: null, role: 'user', content: '', attachments: [{}] }] },
  { messages: [{ id: 'a', parent: null, role: 'user', content: '', attachments: [ELSEWHERE] }] },
  { messages: [{ id: 'a', parent: null, role: 'assistant', content: '', end: 'never' }] },
  { messages: [{ id: 'a', parent: null, role: 'assistant', content: '', figures: {} }] },
  { messages: [{ id: 'a', parent: null, role: 'assistant', content: '', toolCalls: [1] }] },
])('what is no conversation is none: %j', (damage) => {
  const whole = talk().snapshot();
  expect(isStored(whole)).toBe(true);
  expect(isStored({ ...whole, ...damage })).toBe(false);
});

test('attached files become text, in fences that they cannot close', async () => {
  const attached = await readAttachment(new File(['a\n```\nb\n'], 'x.md'));
  expect(withAttachments('Why?', [attached])).toBe('x.md:\n````\na\n```\nb\n````\n\nWhy?');
  const refused = (parts: BlobPart[]) => readAttachment(new File(parts, 'x.bin'));
  await expect(refused([new Uint8Array([0xff, 0xfe])])).rejects.toThrow(AttachmentError);
  await expect(refused(['a\0b'])).rejects.toThrow('no text file');
  await expect(refused(['x'.repeat(600_000)])).rejects.toThrow('600 kB');
});

test('a forbidden storage is null', () => {
  const refused = () => {
    throw new DOMException('no', 'SecurityError');
  };
  expect(storageOr(refused)).toBe(null);
});

test('settings are stored; invalid ones get their defaults', () => {
  const store = new MapStore();
  const settings: Settings = { ...DEFAULTS, system: 'Be brief.', temperature: 0, topK: 4, seed: 7 };
  saveSettings(store, settings);
  expect(readSettings(store)).toEqual(settings);
  const unsound = { system: 3, temperature: 9, topP: 'x', maxTokens: 1.5, seed: -1, tools: [] };
  saveSettings(store, unsound as never);
  expect(readSettings(store)).toEqual(DEFAULTS);
});

test('a request has the settings that are set and no others', () => {
  expect(requestFields(DEFAULTS)).toEqual({});
  const settings = { ...DEFAULTS, system: '  Be brief. ', temperature: 0, maxTokens: 64 };
  expect(requestOf(talk().messages.slice(0, 2), settings)).toEqual({
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Why?' },
      { role: 'assistant', content: 'Because.' },
    ],
    temperature: 0,
    max_tokens: 64,
  });
});

test('valid schemas and tools are sent, invalid ones are reported', () => {
  const schema = '{"type": "object"}';
  const tools = '[{"type": "function", "function": {"name": "f"}}]';
  const set = { ...DEFAULTS, schema, tools };
  expect(requestOf([], set)).toMatchObject({
    response_format: { type: 'json_schema', json_schema: { schema: { type: 'object' } } },
    tools: [{ function: { name: 'f' } }],
  });
  expect(requestOf([], { ...DEFAULTS, schema: tools, tools: schema })).toEqual({ messages: [] });
  expect(faultOf('schema', set)).toBe('');
  expect(faultOf('schema', { ...DEFAULTS, schema: '{' })).toContain('no JSON object');
  expect(faultOf('tools', { ...DEFAULTS, tools: '{}' })).toContain('no JSON array');
});

test('tool calls and results are sent in OpenAI’s format', () => {
  const conversation = new Conversation();
  conversation.ask('Weather?');
  const calls = answer(conversation, '');
  calls.toolCalls = [{ id: 'c1', name: 'weather', arguments: '{}' }];
  conversation.addToolResult('c1', 'dry');
  expect(requestOf(conversation.messages, DEFAULTS).messages.slice(1)).toEqual([
    {
      role: 'assistant',
      content: '',
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{}' } }],
    },
    { role: 'tool', content: 'dry', tool_call_id: 'c1' },
  ]);
});

test('an answer is announced by whole sentences, each once, without Markdown characters', () => {
  const sentences = new Sentences();
  expect(sentences.next('Pi is 3.14')).toBe('');
  expect(sentences.next('Pi is 3.14, **about**. It')).toBe('Pi is 3.14, about.');
  expect(sentences.next('Pi is 3.14, **about**. It goes')).toBe('');
  expect(sentences.next('Pi is 3.14, **about**. It goes on!\n- `a`\n')).toBe('It goes on! a');
  expect(sentences.rest('Pi is 3.14, **about**. It goes on!\n- `a`\nend')).toBe('end');
});
